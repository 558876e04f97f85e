// Package envtest tests CRDs and controllers against a real API server. There is no kubelet: the
// tests set what one would.
package envtest

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// config and api speak to the API server of the tests, api without a cache.
var (
	config *rest.Config
	api    client.Client
)

// logTo is where controllers log to.
var logTo *os.File

func TestMain(m *testing.M) {
	if args := os.Getenv(envOperator); args != "" {
		os.Exit(runOperator(args))
	}
	// Most of the time a test waits for the operator, which waits for its clock: more of them run
	// side by side than there are processors.
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		if err := f.Value.Set("5"); err != nil {
			panic(err)
		}
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "controllers/envtest:", err)
		os.Exit(1)
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	// For the API server and etcd, whose collectors have little to keep and much to do.
	if err := os.Setenv("GOGC", "400"); err != nil {
		return 0, err
	}
	apiserver, etcd, err := assets()
	if err != nil {
		return 0, err
	}
	if err := dmv1.AddToScheme(scheme.Scheme); err != nil {
		return 0, err
	}
	logTo = logFile()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(logTo, nil)))
	var environment *envtest.Environment
	environment, config, err = startServers(apiserver, etcd, filepath.Join("..", "..", "config", "crd"))
	if err != nil {
		return 0, fmt.Errorf("start the API server: %w", err)
	}
	defer environment.Stop()
	if api, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// startServers starts etcd and an API server with the CRDs in these folders. On a busy machine they
// may take long, somebody else may take their ports, and envtest gives namespaces but 5 s to come:
// so they are started again if need be.
func startServers(apiserver, etcd string, crds ...string) (environment *envtest.Environment, config *rest.Config, err error) {
	const tries = 4
	for range tries {
		environment = &envtest.Environment{
			CRDDirectoryPaths:        crds,
			ErrorIfCRDPathMissing:    true,
			ControlPlaneStartTimeout: 2 * time.Minute,
			ControlPlaneStopTimeout:  time.Minute,
			CRDInstallOptions:        envtest.CRDInstallOptions{MaxTime: 2 * time.Minute},
		}
		environment.ControlPlane.GetAPIServer().Path = apiserver
		if version := os.Getenv(emulated); version != "" {
			environment.ControlPlane.GetAPIServer().Configure().Append("emulated-version", "kube="+version)
		}
		environment.ControlPlane.Etcd = &envtest.Etcd{Path: etcd}
		if config, err = environment.Start(); err == nil {
			return environment, config, nil
		}
		fmt.Fprintln(os.Stderr, "controllers/envtest: start the API server:", err)
		err = errors.Join(err, environment.Stop())
	}
	return nil, nil, err
}

// logFile is where controllers log to: stderr if DMINDEX_TEST_LOG is set.
func logFile() *os.File {
	if os.Getenv("DMINDEX_TEST_LOG") != "" {
		return os.Stderr
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return os.Stderr
	}
	return null
}
