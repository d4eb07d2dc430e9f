module skysail.dev/provider

go 1.26.0
