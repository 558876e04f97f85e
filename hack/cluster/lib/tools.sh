# What the cluster is made of: one line a program. Versions stand only in modules/*/go.mod.
# This file is part of the cache key: changing it makes a new cluster-<hash>, but only programs whose own line,
# flags or module changed are compiled again.

# name                     module          package
tools_table() {
	cat <<'TABLE'
etcd                       etcd            go.etcd.io/etcd/server/v3
kubectl                    kubernetes      k8s.io/kubernetes/cmd/kubectl
kube-apiserver             kubernetes      k8s.io/kubernetes/cmd/kube-apiserver
kube-controller-manager    kubernetes      k8s.io/kubernetes/cmd/kube-controller-manager
kube-scheduler             kubernetes      k8s.io/kubernetes/cmd/kube-scheduler
kube-proxy                 kubernetes      k8s.io/kubernetes/cmd/kube-proxy
kubelet                    kubernetes      k8s.io/kubernetes/cmd/kubelet
containerd                 containerd      github.com/containerd/containerd/v2/cmd/containerd
containerd-shim-runc-v2    containerd      github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
ctr                        containerd      github.com/containerd/containerd/v2/cmd/ctr
runc                       runc            github.com/opencontainers/runc
ptp                        cni             github.com/containernetworking/plugins/plugins/main/ptp
loopback                   cni             github.com/containernetworking/plugins/plugins/main/loopback
host-local                 cni             github.com/containernetworking/plugins/plugins/ipam/host-local
coredns                    coredns         github.com/coredns/coredns
helm                       helm            helm.sh/helm/v4/cmd/helm
TABLE
	# Only the horizontal pod autoscaler and `kubectl top` need it, and it compiles its own copy of half of Kubernetes.
	[ "${METRICS:-0}" != 1 ] ||
		echo "metrics-server metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server"
}

# version_of MODULE PATH : the version that modules/MODULE/go.mod pins for PATH, without the v.
version_of() { sed -n "s#^\(require\)\?[[:space:]]*$2 v\([^ ]*\).*#\2#p" "$cluster_dir/modules/$1/go.mod" | head -n 1; }

# tool_flags NAME MODULE : sets tags, stamps (-X settings) and cgo for one program.
tool_flags() {
	tags='' stamps='' cgo=0
	case $1 in
	containerd)
		tags=no_btrfs,no_zfs,no_devmapper
		stamps="-X github.com/containerd/containerd/v2/version.Version=v$(version_of containerd github.com/containerd/containerd/v2)" ;;
	runc) # its nsenter is C, and the kubelet's default seccomp profile needs libseccomp
		cgo=1 tags=osusergo,netgo,seccomp
		stamps="-X main.version=$(version_of runc github.com/opencontainers/runc)" ;;
	esac
	if [ "$2" = kubernetes ]; then # unstamped, the API server calls itself v0.0.0 and clients refuse it
		local version minor package
		version=$(version_of kubernetes k8s.io/kubernetes)
		minor=${version#*.}
		for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
			stamps+=" -X $package.gitVersion=v$version -X $package.gitMajor=${version%%.*}"
			stamps+=" -X $package.gitMinor=${minor%%.*} -X $package.gitTreeState=clean"
		done
	fi
}
