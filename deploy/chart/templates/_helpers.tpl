{{- define "skysail.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains "skysail" .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-skysail" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "skysail.serviceAccountName" -}}
{{- default (include "skysail.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "skysail.selectorLabels" -}}
app.kubernetes.io/name: skysail
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "skysail.labels" -}}
{{ include "skysail.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* A reference with the registry of `registryOverride`. The first part of a reference is a registry if it has a dot or a port, or is localhost. */ -}}
{{- define "skysail.reference" -}}
{{- $reference := .reference -}}
{{- if .registry -}}
{{- $parts := splitList "/" $reference -}}
{{- $first := first $parts -}}
{{- if and (gt (len $parts) 1) (or (contains "." $first) (contains ":" $first) (eq $first "localhost")) -}}
{{- $reference = join "/" (rest $parts) -}}
{{- end -}}
{{- $reference = printf "%s/%s" (trimSuffix "/" .registry) $reference -}}
{{- end -}}
{{- $reference -}}
{{- end -}}

{{- define "skysail.image" -}}
{{- $repository := include "skysail.reference" (dict "registry" .Values.registryOverride "reference" .Values.image.repository) -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" $repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "skysail.bindAddress" -}}
{{- default (ternary "127.0.0.1" "" .Values.hostNetwork) .Values.bindAddress -}}
{{- end -}}

{{- /* The ServiceAccount of the manager as the subject of a binding. */ -}}
{{- define "skysail.subjects" -}}
subjects:
- kind: ServiceAccount
  name: {{ include "skysail.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end -}}

{{- define "skysail.proxied" -}}
{{- $spec := deepCopy .spec -}}
{{- if .values.proxy -}}
{{- $_ := set $spec "egress" (merge (default dict $spec.egress) (dict "proxy" .values.proxy)) -}}
{{- end -}}
{{- if (default dict $spec.source).oci -}}
{{- $oci := $spec.source.oci -}}
{{- $_ := set $oci "reference" (include "skysail.reference" (dict "registry" .values.registryOverride "reference" $oci.reference)) -}}
{{- if .values.proxy -}}
{{- $_ := set $oci "proxy" (default .values.proxy $oci.proxy) -}}
{{- end -}}
{{- end -}}
{{- toYaml $spec -}}
{{- end -}}

{{- /* What a value names in the cluster: a line `KIND NAMESPACE NAME` for each. */ -}}
{{- define "skysail.named" -}}
{{- if kindIs "map" . -}}
{{- range $key, $value := . -}}
{{- if and (kindIs "map" $value) (has $key (list "secretKeyRef" "configMap" "serviceAccountToken")) -}}
{{- range $name := concat (compact (list $value.name)) (default list $value.names) }}
{{ $key }} {{ $value.namespace }} {{ $name }}
{{- end -}}
{{- else -}}
{{- include "skysail.named" $value -}}
{{- end -}}
{{- end -}}
{{- else if kindIs "slice" . -}}
{{- range . -}}
{{- include "skysail.named" . -}}
{{- end -}}
{{- end -}}
{{- end -}}
