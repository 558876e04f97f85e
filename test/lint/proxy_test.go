package lint

import (
	"go/ast"
	"strings"
	"testing"
)

// TestNoProxy: connections between our own programs never go through a proxy. gRPC takes one from
// the environment, which clusters put into every pod, and proxies neither know pods nor may see
// what is said.
func TestNoProxy(t *testing.T) {
	dials := 0
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !strings.HasSuffix(f.src[call.Fun.Pos()-1:call.Fun.End()-1], "grpc.NewClient") {
				return true
			}
			dials++
			if text := f.src[call.Pos()-1 : call.End()-1]; !strings.Contains(text, `"unix:`) && !strings.Contains(f.src, "grpc.WithNoProxy()") {
				t.Errorf("%s: grpc.NewClient without grpc.WithNoProxy(): HTTPS_PROXY of the pod would take the connection", f.at(call))
			}
			return true
		})
	}
	if dials < 5 {
		t.Errorf("%d calls of grpc.NewClient were found", dials)
	}
}
