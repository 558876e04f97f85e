# Where things are. Two places only, both movable:
#   DMINDEX_CACHE  what was built and may be kept between machines (binaries, by the hash of their recipe)
#   DMINDEX_STATE  the one running cluster (keys, logs, etcd, node folders); `down` removes it

cluster_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
hack_dir=$(dirname "$cluster_dir")
modules_dir=$cluster_dir/modules
cache=${DMINDEX_CACHE:-$HOME/.cache/dmindex}
PATH=$PATH:/usr/sbin:/sbin # where Debian keeps ip, nft and conntrack, and not every root has it
state=$(realpath -m "${DMINDEX_STATE:-/var/tmp/dmindex-cluster}")
export cluster_dir cache state

# digest FILE... : twelve hex digits that change when a name or a content changes.
digest() { (cd "$cluster_dir" && sha256sum "$@") | sha256sum | cut -c1-12; }

# relative PATH... : paths as seen from hack/cluster, so that a digest does not depend on where the clone lies.
relative() { realpath --relative-to="$cluster_dir" "$@"; }

cluster_key()  { digest lib/tools.sh modules/*/go.mod modules/*/go.sum; }
cluster_home() { echo "$cache/cluster-$(cd "$cluster_dir" && cluster_key)"; }

images_key()  { (cd "$cluster_dir" && digest pause/*.go ../image/*.go); }
pause_image() { echo "$cache/images-$(images_key)/pause.tar"; }
