module github.com/dmindex/dmindex/hack/cluster/pause

go 1.26.0
