package config

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestCopies: a memory server has the addresses of its copies, the primary's first. What was
// written without copies is valid, and a program that knows none finds the primary.
func TestCopies(t *testing.T) {
	const before = `{"identity": "a", "design": "dex", "keyType": "Uint64", "maxKeyBytes": 8, "routing": "Any", "memoryServers": [{"id": 1, "control": "a:1"}]}`
	read := func(text, want string, addresses ...string) {
		t.Helper()
		var i Index
		if err := json.Unmarshal([]byte(text), &i); err != nil {
			t.Fatal(err)
		}
		if err := i.Validate(); err == nil && want != "" || err != nil && (want == "" || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v does not say %q", err, want)
		}
		if got := strings.Join(i.MemoryServers[0].Addresses(), " "); want == "" && got != strings.Join(addresses, " ") {
			t.Errorf("it is at %s, want %v", got, addresses)
		}
		written, err := json.Marshal(&i)
		if has := strings.Contains(string(written), "copies"); err != nil || has != (len(i.MemoryServers[0].Copies) > 0) {
			t.Errorf("it is written as %s, %v", written, err)
		}
	}
	read(before, "", "a:1")
	read(strings.Replace(before, `"a:1"`, `"a:1", "copies": ["b:1", "c:1"]`, 1), "", "a:1", "b:1", "c:1")
	read(strings.Replace(before, `"a:1"`, `"a:1", "copies": [""]`, 1), "an empty address")
	read(strings.Replace(before, `"a:1"`, `"a:1", "copies": ["b","c","d","e","f","g","h","i"]`, 1), "more than 8")
}
