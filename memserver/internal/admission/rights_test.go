package admission

import (
	"testing"

	"google.golang.org/grpc"

	rpcv1 "github.com/dmindex/dmindex/api/rpc/v1"
	"github.com/dmindex/dmindex/pkg/identity"
)

// TestEveryMethodHasRights: a method that is added to the service is nobody's until somebody
// decides.
func TestEveryMethodHasRights(t *testing.T) {
	for _, service := range []grpc.ServiceDesc{rpcv1.Memory_ServiceDesc, rpcv1.Volume_ServiceDesc} {
		for _, m := range service.Methods {
			if rights["/"+service.ServiceName+"/"+m.MethodName] == nobody {
				t.Errorf("%s has no rights", m.MethodName)
			}
		}
	}
	everything := identity.Identity{Role: identity.RoleOperator}
	if authorize(everything, "/some.Other/Call", nil) == nil {
		t.Error("a call that is not known is allowed")
	}
}
