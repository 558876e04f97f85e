package identity

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// FabricFile is the file of a memory server's TLS directory that names the indexes whose clients
// must come under TLS, by URIs dmindex://index/<object>, one in a line. Without the file there are
// none. A line that is not understood spoils the file, as one of AuthoritiesFile does.
const FabricFile = "fabric-tls"

// AppendFabric appends a FabricFile to dst.
func AppendFabric(dst []byte, indexes ...*url.URL) []byte {
	for _, u := range indexes {
		dst = append(append(dst, u.String()...), '\n')
	}
	return dst
}

// FabricTLS reports whether clients of an index must come under TLS to the fabric.
func (f *Files) FabricTLS(index string) bool {
	m := f.load()
	return m.fabricTLS.client(Identity{Role: RoleClient, Index: index})
}

// readFabric reads a FabricFile.
func readFabric(dir string) (v voice, err error) {
	data, err := os.ReadFile(filepath.Join(dir, FabricFile))
	if errors.Is(err, os.ErrNotExist) {
		return v, nil
	}
	for _, line := range strings.Fields(string(data)) {
		if err := v.add(line); err != nil {
			return v, fmt.Errorf("%s: %w", FabricFile, err)
		}
	}
	if err == nil && (v.operator || len(v.domains) > 0) {
		err = fmt.Errorf("%s: %s://index/<object> are possible, and nothing else", FabricFile, Scheme)
	}
	return v, err
}
