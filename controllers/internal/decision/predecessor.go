package decision

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/dmindex/dmindex/controllers/internal/kube"
)

// stateOwner is the field manager of state. Operators that know no stamps write the same
// annotations as kube.Owner, so it shows which values one of them wrote last.
const stateOwner = client.FieldOwner("dmindex-operator-state")

// byPredecessor reports whether an operator that knows no stamps wrote a value of an object that is
// not the recorded one. What somebody else wrote since is somebody else's: the API server says so.
func byPredecessor(object client.Object, values, recorded map[string]string) bool {
	for _, entry := range object.GetManagedFields() {
		if entry.Manager != string(kube.Owner) || entry.Operation != metav1.ManagedFieldsOperationUpdate || entry.FieldsV1 == nil {
			continue
		}
		var fields struct {
			Metadata struct {
				Annotations map[string]json.RawMessage `json:"f:annotations"`
			} `json:"f:metadata"`
		}
		if json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue // it says nothing
		}
		for key, value := range values {
			if _, wrote := fields.Metadata.Annotations["f:"+key]; wrote && value != recorded[key] {
				return true
			}
		}
	}
	return false
}
