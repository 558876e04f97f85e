//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"
)

// target is the cluster that test/e2e/run made ready.
var target struct {
	kubectl, helm string
	plugin        string // kubectl-dmindex
	system        string // namespace of the operator
	image         string // that the operator runs, and its servers
	nextImage     string // another name of the same program
	toolsImage    string // with exercise, dmindex, redis-cli, a shell
	artifacts     string // folder for what is gathered of failed tests
}

func TestMain(m *testing.M) {
	for name, value := range map[string]*string{
		"KUBECTL": &target.kubectl, "HELM": &target.helm, "PLUGIN": &target.plugin, "SYSTEM": &target.system, "IMAGE": &target.image,
		"NEXT_IMAGE": &target.nextImage, "TOOLS_IMAGE": &target.toolsImage, "ARTIFACTS": &target.artifacts,
	} {
		if *value = os.Getenv(name); *value == "" {
			fmt.Fprintf(os.Stderr, "test/e2e: %s is not set: use test/e2e/run, which brings a cluster and sets all of it\n", name)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
