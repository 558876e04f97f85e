package engine

import (
	"testing"

	"github.com/dmindex/dmindex/api/config"
)

// TestBound: what is below a prefix is below its bound, and the bound can be a key.
func TestBound(t *testing.T) {
	for kind, of := range map[string]map[string]string{
		config.KeyBytes:  {"": "", "a": "a"},
		config.KeyUint64: {"": "", "a": "a\x00\x00\x00\x00\x00\x00\x00", "abcdefg": "abcdefg\x00", "abcdefgh": "abcdefgh"},
	} {
		c := &Engine{Index: &config.Index{KeyType: kind, MaxKeyBytes: 8}}
		for prefix, want := range of {
			got := c.Bound([]byte(prefix))
			if string(got) != want || c.checkBound(got) != nil {
				t.Errorf("%s %q: %q, %v", kind, prefix, got, c.checkBound(got))
			}
		}
	}
}
