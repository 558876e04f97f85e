# 7. An index whose content is in files: all of its servers are one process here, which is killed while a program writes. On Kubernetes
# the same is durability: Persistent, which needs a StorageClass (docs/kubernetes/memory.md, "Keep memory on disks").
# It needs no cluster, so it runs beside step 6, which waits most of its time. Its own step shows what it printed.
begin_durable() {
	in_background kill_and_return >"$work/durable.log" 2>&1
	durable=$background
}

durable() {
	local ended=0
	wait_for "$durable" || ended=$?
	cat "$work/durable.log"
	[ "$ended" = 0 ] || {
		end_group "$durable"
		fail "the index that was killed did not come back as it should"
	}
}

# kill_and_return runs in a process group of its own, with all that it starts.
kill_and_return() {
	local dir=$work/durable pairs acknowledged found
	exec 3>&1 # what show prints belongs here, too
	make --no-print-directory build >/dev/null
	rm -rf "$dir"
	start_local
	show bin/dmindex load --endpoint "$rpc" --tree "$tree/net"
	pairs=$(bin/dmindex scan --endpoint "$rpc" --count)
	write_counter &
	soon "$limit" "a program writes" written 50
	show kill -9 "$local_index"
	wait "$local_index" 2>/dev/null || true
	wait "$!" || true # write_counter
	acknowledged=$(wc -l <"$work/acknowledged")
	echo "acknowledged until then: $acknowledged changes of one key"

	start_local
	same "$pairs" "$(bin/dmindex scan --endpoint "$rpc" --keys | grep -cvFx counter)" "pairs that were loaded"
	found=$(redis-cli -p "$resp" get counter)
	# One change more may have been done, whose answer nobody got.
	[ "$found" = $((acknowledged + 1)) ] || same "$acknowledged" "$found" "the counter"
	kill "$local_index"
	wait "$local_index" || true
}

# start_local: starts the index with its directory, and sets $local_index, $resp and $rpc
start_local() {
	printf '$ bin/dmindex local --persist %s\n' "$dir"
	bin/dmindex local --persist "$dir" --memory 128Mi --compute-servers 1 --listen 127.0.0.1:0 --listen-rpc 127.0.0.1:0 >"$work/local.log" 2>&1 &
	local_index=$!
	soon "$limit" "the index listens" grep -q 'Ctrl-C' "$work/local.log"
	resp=$(sed -n 's/^ *RESP .*:\([0-9]*\)$/\1/p' "$work/local.log")
	rpc=$(sed -n 's/^ *SDK *\([^ ]*\)$/\1/p' "$work/local.log")
	soon "$limit" "the index answers" redis-cli -e -p "$resp" get counter >/dev/null
}

# write_counter: changes a key again and again until that fails, and writes a line for each change that was acknowledged
write_counter() {
	: >"$work/acknowledged"
	while redis-cli -p "$resp" incr counter 2>/dev/null | grep -Ex '[0-9]+' >>"$work/acknowledged"; do :; done
}
written() { [ "$(wc -l <"$work/acknowledged")" -ge "$1" ]; }
