# 3. Loads every file of the tree. The tree is streamed as a tar into the Job's pod, which works on any cluster: nodes need not have
# it, and the namespace keeps its restricted pod security.
load_tree() {
	local pod loader
	(cd "$tree" && find . -type f -printf '%P\n') | LC_ALL=C sort >"$work/files"
	manifest load | k apply -f -
	soon "$limit" "the Job's pod takes the tree" receiving
	pod=$(job_pod)
	as="tar --create --directory $tree . | k exec -i $pod -c receive -- tar -xp -C /tree/src" show stream "$pod"
	k exec "$pod" -c receive -- touch /tree/complete
	soon "$limit" "the loader runs" loading
	show k logs -f "$pod" -c load
	show k wait job/load --for=condition=Complete --timeout="${limit}s"
}

job_pod() { k get pods -l job-name=load -o 'jsonpath={.items[0].metadata.name}'; }

receiving() { k get "pod/$(job_pod)" -o 'jsonpath={.status.phase} {.status.initContainerStatuses[0].state}' | tee /dev/stderr | grep -q running; }

loading() {
	local state
	state=$(k get "pod/$(job_pod)" -o 'jsonpath={.status.containerStatuses[0].state}')
	[[ $state == *running* || $state == *terminated* ]]
}

# stream POD
stream() {
	tar --create --directory "$tree" . | k exec -i "$1" -c receive -- tar -xp -C /tree/src
	printf '%s of %s files\n' "$(du -sh "$tree" | cut -f1)" "$(wc -l <"$work/files")"
}
