module skysail.dev/guests/probe-go

go 1.26.0

require skysail.dev/provider v0.0.0

replace skysail.dev/provider => ../../guest-sdk/go
