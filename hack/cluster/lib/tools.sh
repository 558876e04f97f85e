# What the cluster is made of: one line a program. Versions stand only in programs/go.mod and metrics-server/go.mod.
# This file is part of the cache key: changing it makes a new cluster-<hash>.
#
# All programs are pinned by one module, so that what several of them use (gRPC, client-go, half of Kubernetes) is downloaded and compiled
# once. The module holds all of Kubernetes' libraries at the version of its programs.

# package, below the module `programs`; a program has its package's last name
tools_table() {
	cat <<'TABLE'
./coredns
./etcd
github.com/containerd/containerd/v2/cmd/containerd
github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
github.com/containerd/containerd/v2/cmd/ctr
github.com/containernetworking/plugins/plugins/ipam/host-local
github.com/containernetworking/plugins/plugins/main/loopback
github.com/containernetworking/plugins/plugins/main/ptp
helm.sh/helm/v4/cmd/helm
k8s.io/kubernetes/cmd/kube-apiserver
k8s.io/kubernetes/cmd/kube-controller-manager
k8s.io/kubernetes/cmd/kube-proxy
k8s.io/kubernetes/cmd/kube-scheduler
k8s.io/kubernetes/cmd/kubectl
k8s.io/kubernetes/cmd/kubelet
TABLE
}

# runc is built apart: its nsenter is C, and the kubelet's default seccomp profile needs libseccomp.
runc_package=github.com/opencontainers/runc

# Only the horizontal pod autoscaler and `kubectl top` need it, and its module does not agree with that of the others.
metrics_package=sigs.k8s.io/metrics-server/cmd/metrics-server

# version_of PATH : the version that programs/go.mod pins for PATH, without the v.
version_of() { sed -n "s#^[[:space:]]*$1 v\([^ ]*\).*#\1#p" "$programs_dir/go.mod" | head -n 1; }

# stamps : the -X settings of all programs. Unstamped, the API server calls itself v0.0.0 and clients refuse it.
stamps() {
	local version minor package
	version=$(version_of k8s.io/kubernetes)
	minor=${version#*.}
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf '%s ' "-X $package.gitVersion=v$version -X $package.gitMajor=${version%%.*}" \
			"-X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
	done
	echo "-X github.com/containerd/containerd/v2/version.Version=v$(version_of github.com/containerd/containerd/v2)"
}
