# Every script begins with this: words, paths, and `use` to take in more parts of lib/.
. "$(dirname "${BASH_SOURCE[0]}")/say.sh"
. "$(dirname "${BASH_SOURCE[0]}")/paths.sh"

use() { # PART...
	local part
	for part in "$@"; do . "$cluster_dir/lib/$part.sh"; done
}
