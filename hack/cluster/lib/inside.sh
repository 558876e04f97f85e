# Entering the cluster's namespaces from outside.
# Needs: say.sh, paths.sh, process.sh

need_cluster() {
	cluster_pid=$(recall "$state/init.pid") || fail "no cluster is up (state: $state): run hack/cluster/up"
	node_count=$(<"$state/nodes")
	PATH=$(<"$state/bin"):$PATH
	export PATH KUBECONFIG=$state/kubeconfig
}

# in_cluster COMMAND... : in the namespaces that hold the control plane and the bridge; keeps the working folder.
in_cluster() {
	nsenter --target "$cluster_pid" --mount --net --pid --uts --ipc \
		bash -c 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"' cluster "$PWD" "$@"
}

node_numbers() { seq "$node_count"; }

need_node() { # I
	[[ $1 =~ ^[1-9]$ ]] && [ "$1" -le "$node_count" ] || fail "there is no node $1: the cluster has nodes 1 to $node_count"
}

# The number of a node's first process, as the cluster's process namespace counts.
node_init() { in_cluster bash -c '. "$1"; recall "$2"' _ "$cluster_dir/lib/process.sh" "$state/node$1/init.pid"; }

# in_node I COMMAND...
in_node() {
	local init
	init=$(node_init "$1") || fail "node $1 is off: hack/cluster/node start $1"
	shift
	in_cluster nsenter --target "$init" --mount --net --pid --uts --ipc "$@"
}
