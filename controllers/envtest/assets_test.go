package envtest

import (
	"fmt"
	"os"
	"path/filepath"
)

// assets are the control plane's programs: named by TEST_ASSET_KUBE_APISERVER and TEST_ASSET_ETCD,
// or built by hack/cluster/build into the cache.
func assets() (apiserver, etcd string, err error) {
	apiserver, etcd = os.Getenv("TEST_ASSET_KUBE_APISERVER"), os.Getenv("TEST_ASSET_ETCD")
	if apiserver != "" && etcd != "" {
		return apiserver, etcd, nil
	}
	cache := os.Getenv("DMINDEX_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", "", err
		}
		cache = filepath.Join(home, ".cache", "dmindex")
	}
	found, err := filepath.Glob(filepath.Join(cache, "cluster-*", "bin", "kube-apiserver"))
	if err != nil {
		return "", "", err
	}
	for _, apiserver := range found {
		etcd := filepath.Join(filepath.Dir(apiserver), "etcd")
		if executable(apiserver) && executable(etcd) {
			return apiserver, etcd, nil
		}
	}
	return "", "", fmt.Errorf("no kube-apiserver and etcd below %s: run hack/cluster/build, which builds them once (about 10 minutes), "+
		"or name them in TEST_ASSET_KUBE_APISERVER and TEST_ASSET_ETCD", cache)
}

func executable(path string) bool {
	info, err := os.Stat(path) // follows links
	return err == nil && info.Mode()&0o111 != 0
}
