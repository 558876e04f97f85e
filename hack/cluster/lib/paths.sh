# Where things are. Two places only, both movable:
#   DMINDEX_CACHE  what was built and may be kept between machines (binaries, by the hash of their recipe)
#   DMINDEX_STATE  the one running cluster (keys, logs, etcd, node folders); `down` removes it

cluster_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
hack_dir=$(dirname "$cluster_dir")
programs_dir=$cluster_dir/programs
: "${HOME:=/root}"
cache=${DMINDEX_CACHE:-$HOME/.cache/dmindex}
PATH=$PATH:/usr/sbin:/sbin # where Debian keeps ip, nft and conntrack, and not every root has it
state=$(realpath -m "${DMINDEX_STATE:-/var/tmp/dmindex-cluster}")
export HOME cluster_dir cache state

# digest PATTERN... : twelve hex digits that change when the name or content of a file changes. Patterns are relative to
# hack/cluster, so that it does not matter where the clone lies.
digest() {
	# shellcheck disable=SC2086,SC2048 # patterns
	(cd "$cluster_dir" && sha256sum $*) | sha256sum | cut -c1-12
}

cluster_home() { echo "$cache/cluster-$(digest 'lib/tools.sh programs/go.* programs/*/*.go metrics-server/go.*')"; }
pause_image()  { echo "$cache/images-$(digest 'pause/*.go ../image/*.go')/pause.tar"; }
