# What `up` does on the host itself, and what `down` takes back. Each change is written down in the state folder first.
# Needs: say.sh, paths.sh, process.sh, wait.sh, address.sh, cgroups.sh for the taking back

mark=dmindex-cluster # a file that says: this folder is ours to remove

make_state_folder() {
	if [ -d "$state" ] && [ ! -e "$state/$mark" ] && [ -n "$(ls -A "$state")" ]; then
		fail "$state holds something that is not a cluster's state: set DMINDEX_STATE to a folder of its own"
	fi
	mkdir -p "$state"
	touch "$state/$mark"
	mkdir -p "$state"/{log,run,volumes,volume-plugins}
	echo "$node_count" >"$state/nodes"
	echo "$bin" >"$state/bin"
	echo "${METRICS:-0}" >"$state/metrics"
	dirname "$(pause_image)" >"$state/images"
}

# make_mount_points PATH... : they must exist before something can be mounted over them, which only the cluster's own
# mount namespaces see. Missing ones are made, and removed by `down`.
make_mount_points() {
	local path missing
	for path in "$@"; do
		missing=$path
		while [ ! -d "$missing" ]; do
			echo "$missing" >>"$state/made-folders"
			missing=$(dirname "$missing")
		done
		mkdir -p "$path"
	done
}

remove_mount_points() {
	local path
	[ -r "$state/made-folders" ] || return 0
	sort -r "$state/made-folders" | while read -r path; do rmdir "$path" 2>/dev/null || true; done
}

huge_page_count=/proc/sys/vm/nr_hugepages

reserve_huge_pages() {
	local before
	before=$(<$huge_page_count)
	[ "$before" -lt "$1" ] || return 0
	echo "$before $1" >"$state/huge-pages"
	echo "$1" >$huge_page_count
	[ "$(<$huge_page_count)" -ge "$1" ] || say "only $(<$huge_page_count) of $1 huge pages could be had: memory is fragmented"
}

release_huge_pages() {
	local before ours
	[ -r "$state/huge-pages" ] || return 0
	read -r before ours <"$state/huge-pages"
	[ "$(<$huge_page_count)" -gt "$ours" ] || echo "$before" >$huge_page_count # else somebody raised it since
}

# start_cluster starts cluster-init in namespaces of its own, with an environment that nothing of the caller's leaks into.
# It holds the first process back, by a pipe, until the host's link is there.
start_cluster() {
	local parent init images
	images=$(<"$state/images")
	mkfifo "$state/go"
	(
		# The lock is `up`'s, and a pipe that the caller left open is the caller's: neither may live as long as the cluster.
		for fd in /proc/"$BASHPID"/fd/*; do
			fd=${fd##*/}
			[ "$fd" -le 2 ] || eval "exec $fd>&-"
		done
		exec setsid env -i PATH="$PATH" HOME="$HOME" METRICS="${METRICS:-0}" begin="$begin" \
			DMINDEX_STATE="$state" DMINDEX_CACHE="$cache" cluster_dir="$cluster_dir" \
			bin="$bin" images="$images" node_count="$node_count" \
			unshare --fork --kill-child --pid --mount --net --uts --ipc --mount-proc --propagation private \
			bash -c 'exec 3<>"$1"; read -r -t 120 <&3 && exec "$0" 3<&-' "$cluster_dir/lib/cluster-init" "$state/go"
	) >"$state/log/boot.log" 2>&1 </dev/null &
	parent=$!
	wait_until 60 pgrep -P "$parent" || fail "the kernel refused new namespaces: $(<"$state/log/boot.log")"
	init=$(pgrep -P "$parent")
	remember "$state/init.pid" "$init"
	link_host "$init"
	timeout 60 bash -c 'echo go >"$1"' _ "$state/go"
}

# link_host PID : the host's leg in the cluster's network, and the routes to pods and Services.
link_host() {
	ip link add name "$host_link" type veth peer name dmindex1 netns "$1"
	ip link set "$host_link" alias "$state" # tells another clone whose it is
	ip addr add "$host_ip/24" dev "$host_link"
	ip link set "$host_link" up
	ip route add "$pod_net" via "$api_ip"
	ip route add "$service_net" via "$api_ip"
}

boot_decided() {
	[ -e "$state/ready" ] || [ -e "$state/failed" ] || ! recall "$state/init.pid"
}

show_end() { # FILE
	[ -r "$1" ] || return 0
	say "The end of ${1#"$state/log/"}:"
	tail -n 15 "$1" | cut -c1-400 | sed 's/^/    /' >&2
}

explain_failed_boot() {
	local reason log
	say "the cluster did not come up. How far it came:"
	sed 's/^/    /' "$state/log/boot.log" >&2
	if [ -e "$state/failed" ]; then
		{ read -r reason; read -r log; } <"$state/failed"
		say "$reason."
		show_end "$log"
		[[ $log != */node[0-9].log ]] || show_end "${log%.log}/kubelet.log"
	fi
	rm -rf "$state-failed"
	cp -r "$state/log" "$state-failed"
	say "all logs of this boot are kept in $state-failed"
}
