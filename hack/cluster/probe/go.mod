module github.com/dmindex/dmindex/hack/cluster/probe

go 1.26.0
