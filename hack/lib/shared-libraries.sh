# shared_libraries FILE...: the libraries that these programs and libraries are linked to, the loader among them, each once, one a line.
shared_libraries() {
	local file
	for file in "$@"; do
		ldd "$file" | grep -o '/[^ ]*' || true # a static program has none
	done | sort -u
}
