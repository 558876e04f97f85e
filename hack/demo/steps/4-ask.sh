# 4. Questions, by the program in the cluster and by redis-cli from here, each compared with the tree itself.
directory=net/http
paths=(archive/zip/reader.go runtime/proc.go net/http/server.go)

ask() {
	local path
	for path in "${paths[@]}"; do
		show in_tools dmindex get --secret /conn "$path" | tee "$work/value"
		describes "$tree/$path" "$work/value"
	done

	grep "^$directory/" "$work/files" >"$work/directory"
	show in_tools dmindex scan --secret /conn --prefix "$directory/" >"$work/scan"
	head -n 5 "$work/scan"
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
	redis range "$directory/" "${directory}0" >"$work/range"
	head -n 4 "$work/range"
	echo "..."
	awk 'NR % 2 == 1' "$work/range" >"$work/range.keys"
	same_files "$work/directory" "$work/range.keys" "range of $directory against its listing"
	same "$(wc -l <"$work/files")" "$(redis dbsize)" "redis-cli dbsize"
	same "" "$(redis get no/such/file)" "a path that is not there"
	close_forward

	echo
	as="k exec tools -- dmindex dump --secret /conn - >$work/all.dump" show in_tools dmindex dump --secret /conn - >"$work/all.dump"
	ls -l "$work/all.dump"
}

count() { in_tools dmindex scan --secret /conn --count; }

# describes FILE VALUE : the value is size, mode and digest of the file
describes() {
	local want
	want="$(stat -c '%s %A' "$1") $(sha256sum "$1" | cut -d' ' -f1)"
	[ "$want" = "$(<"$2")" ] || fail "$1: its value is \"$(<"$2")\", not \"$want\""
}
