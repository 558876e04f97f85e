# Control groups: everything of ours lies below one folder "dmindex" of each hierarchy, one folder a node in it.
# Version 1 and mixed hosts have a hierarchy for each controller; version 2 has a single one.

cgroup_root=/sys/fs/cgroup
cgroup_version() { [ "$(stat -fc %T $cgroup_root)" = cgroup2fs ] && echo 2 || echo 1; }

# Some hosts leave out hugetlb, and then the kubelet cannot limit huge pages; so we mount it, in our mount namespaces only.
needs_hugetlb() {
	[ "$(cgroup_version)" = 1 ] && grep -q '^hugetlb' /proc/cgroups && ! grep -q ' cgroup .*hugetlb' /proc/mounts
}
hugetlb_root=$cgroup_root/hugetlb
mount_hugetlb() {
	! needs_hugetlb || mount -t cgroup -o hugetlb cgroup $hugetlb_root
}

make_node_cgroups() { # NAME
	local hierarchy group
	if [ "$(cgroup_version)" = 2 ]; then
		mkdir -p "$cgroup_root/dmindex/$1"
		for group in $cgroup_root $cgroup_root/dmindex; do # a child has only what its parent hands down
			sed 's/[^ ]*/+&/g' "$group/cgroup.controllers" >"$group/cgroup.subtree_control"
		done
		return
	fi
	for hierarchy in $cgroup_root/*/; do
		[ -e "$hierarchy/cgroup.procs" ] && [ -e "$hierarchy/tasks" ] || continue
		for group in "$hierarchy/dmindex" "$hierarchy/dmindex/$1"; do
			mkdir -p "$group"
			if [ -e "$group/cpuset.cpus" ]; then # starts empty, and an empty one takes no process
				cat "$group/../cpuset.cpus" >"$group/cpuset.cpus"
				cat "$group/../cpuset.mems" >"$group/cpuset.mems"
			fi
		done
	done
}

# try_remove_cgroups [NAME] : removes the groups of one node, or all; fails while a process is still leaving.
try_remove_cgroups() {
	local group left=0
	for group in $cgroup_root/dmindex${1:+/$1} $cgroup_root/*/dmindex${1:+/$1}; do
		[ -d "$group" ] || continue
		find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
		[ ! -d "$group" ] || left=1
	done
	return $left
}
