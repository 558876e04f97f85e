module github.com/dmindex/dmindex/hack/image

go 1.26.0
