package build

import "testing"

// TestExternalAddresses: a name of a certificate that stands for many is no address.
func TestExternalAddresses(t *testing.T) {
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"*.example.com"}, ""},
		{[]string{"*.example.com", "demo.example.com", "2001:db8::7"}, "demo.example.com:6379,[2001:db8::7]:6379"},
	} {
		index := testIndex()
		index.Spec.Endpoints.ExternalNames = c.names
		if got := string(ConnectionSecret(index, nil, nil).Data[KeyExternalRESP]); got != c.want {
			t.Errorf("%v: %q, want %q", c.names, got, c.want)
		}
	}
}
