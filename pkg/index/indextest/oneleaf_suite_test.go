package indextest

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
)

// TestOneLeaf: the design that docs/design/adding-a-design.md shows passes what the suite asks of a
// design whose pairs fit one leaf. The others need many nodes, or those of several sizes.
func TestOneLeaf(t *testing.T) {
	r := runner{Suite: Suite{Design: oneLeafDesign}, provider: "shm", brief: true}
	t.Run("Linearizable", func(t *testing.T) {
		r.linearizableOn(t, index.Options{Uint64: true, MaxValueBytes: 40}, 400)
	})
	t.Run("SmallTree", r.smallTree)
	t.Run("ModifyRefusals", r.modifyRefusals)
	t.Run("Cut", r.cut)
}

// TestPageQuotes: what the page shows of the design is in these files.
func TestPageQuotes(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	code := read("oneleaf_test.go") + read("oneleaf_session_test.go")
	quotes := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read("../../../docs/design/adding-a-design.md"), -1)
	for _, q := range quotes {
		if !strings.Contains(code, q[1]) {
			t.Errorf("docs/design/adding-a-design.md shows what oneleaf_test.go and oneleaf_session_test.go do not have:\n%s", q[1])
		}
	}
	if len(quotes) < 3 {
		t.Errorf("the page shows %d parts of the design", len(quotes))
	}
}
