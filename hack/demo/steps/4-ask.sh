# 4. Questions, by the program in the cluster and by redis-cli from here, each compared with the tree itself.
directory=net/http
paths=(archive/zip/reader.go runtime/proc.go net/http/server.go)

ask() {
	local path
	for path in "${paths[@]}"; do
		show in_tools dmindex get "$path" | tee "$work/value"
		describes "$tree/$path" "$work/value"
	done

	grep "^$directory/" "$work/files" >"$work/directory"
	echo "\$ dmindex scan $directory/ ${directory}0"
	in_tools dmindex scan "$directory/" "${directory}0" | tee "$work/scan" | head -n 5
	echo "..."
	cut -f 1 "$work/scan" >"$work/scan.keys"
	same_files "$work/directory" "$work/scan.keys" "scan of $directory against its listing"
	same "$(wc -l <"$work/files")" "$(count)" "count of the whole"

	echo
	echo "The same with redis-cli, from this machine through the service:"
	open_forward "service/$index"
	for path in "${paths[@]}"; do
		echo "\$ redis-cli get $path"
		redis get "$path" | tee "$work/value"
		describes "$tree/$path" "$work/value"
	done
	echo "\$ redis-cli range $directory/ ${directory}0"
	redis range "$directory/" "${directory}0" | tee "$work/range" | head -n 4
	echo "..."
	awk 'NR % 2 == 1' "$work/range" >"$work/range.keys"
	same_files "$work/directory" "$work/range.keys" "range of $directory against its listing"
	same "$(wc -l <"$work/files")" "$(redis dbsize)" "redis-cli dbsize"
	same "" "$(redis get no/such/file)" "a path that is not there"
	close_forward

	echo
	show in_tools dmindex dump /work/all.dump
}

count() { in_tools dmindex scan --count; }

# describes FILE VALUE : the value has size, mode and digest of the file
describes() {
	local word
	for word in "$(stat -c %s "$1")" "$(sha256sum "$1" | cut -d' ' -f1)"; do
		grep -qF "$word" "$2" || fail "$1: its value does not hold $word: $(<"$2")"
	done
}
