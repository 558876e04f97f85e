# What the cluster is made of: one line a program. Versions stand only in programs/go.mod and metrics-server/go.mod.
# This file is part of the cache key: changing it makes a new cluster-<hash>. So everything that decides what a program does stands
# here: its package, its build tags and the flags of the compiler and the linker.
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

# Without snapshotters of containerd that no node uses.
programs_tags=no_btrfs,no_zfs,no_devmapper

# runc is built apart, with cgo: its nsenter is C, and the kubelet's default seccomp profile needs libseccomp.
runc_package=github.com/opencontainers/runc
runc_tags=osusergo,netgo,seccomp
runc_cgo=1

# Only the horizontal pod autoscaler and `kubectl top` need it, and its module does not agree with that of the others.
metrics_package=sigs.k8s.io/metrics-server/cmd/metrics-server
metrics_tags=

# Flags of `go build` for all of them. -dwarf=false: nobody debugs these, and it makes compiling and the build cache smaller.
build_flags=(-mod=readonly -trimpath -buildvcs=false -gcflags=all=-dwarf=false)

# version_of PATH : the version that programs/go.mod pins for PATH, without the v.
version_of() { sed -n "s#^[[:space:]]*$1 v\([^ ]*\).*#\1#p" "$programs_dir/go.mod" | head -n 1; }

# linker_flags : without symbols, and with the versions of all programs. Unstamped, the API server calls itself v0.0.0 and clients refuse it.
linker_flags() {
	local version minor package
	version=$(version_of k8s.io/kubernetes)
	minor=${version#*.}
	printf '%s ' '-s -w'
	for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
		printf '%s ' "-X $package.gitVersion=v$version -X $package.gitMajor=${version%%.*}" \
			"-X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
	done
	echo "-X github.com/containerd/containerd/v2/version.Version=v$(version_of github.com/containerd/containerd/v2)"
}
