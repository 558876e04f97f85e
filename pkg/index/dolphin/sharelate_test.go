package dolphin

import (
	"errors"
	"testing"

	"github.com/dmindex/dmindex/pkg/index"
	"github.com/dmindex/dmindex/pkg/pool/pooltest"
)

// TestLateValues: an update that shares a leaf WRITEs its value when others have deleted its key,
// inserted it again, or given it a value of another length. It comes before those changes, so what
// they left stays, also in the leaf that takes this one's place.
func TestLateValues(t *testing.T) {
	const key = 3
	long, short, late := sharedValue(77), []byte("short"), []byte("too late")
	for name, c := range map[string]struct {
		do   func(s *Session) error
		want []byte // nil = the key is not there
	}{
		"deleted": {func(s *Session) error { return s.Delete(sharedKey(key)) }, nil},
		"inserted again": {func(s *Session) error {
			return errors.Join(s.Delete(sharedKey(key)), s.Insert(sharedKey(key), long))
		}, long},
		"shorter": {func(s *Session) error { return s.Update(sharedKey(key), short) }, short},
		"as long again": {func(s *Session) error {
			return errors.Join(s.Update(sharedKey(key), short), s.Update(sharedKey(key), long))
		}, long},
		"given a value of the same length": {func(s *Session) error { return s.Update(sharedKey(key), long) }, late},
	} {
		t.Run(name, func(t *testing.T) {
			x, s := openShared(t, pooltest.New(t, pooltest.Options{Servers: 1}), 6)
			sharer, other := sharing(t, x), sharing(t, x)
			leave := stays(t, sharer, sharedKey(key))
			must(t, c.do(other))
			leave(late)
			for _, replaced := range []bool{false, true} {
				if replaced {
					s.Begin()
					_, err := s.lock(sharedKey(key), true)
					must(t, err)
					_, err = s.replace(sharedKey(key), 0, nil)
					must(t, err)
					s.End()
				}
				switch got, err := s.Lookup(sharedKey(key), nil); {
				case c.want == nil && err != index.ErrNotFound:
					t.Errorf("replaced %v: a deleted key has value %q, %v", replaced, got, err)
				case c.want != nil && (err != nil || string(got) != string(c.want)):
					t.Errorf("replaced %v: the value is %q, %v, want %q", replaced, got, err, c.want)
				}
			}
			_, err := x.Check()
			must(t, err)
		})
	}
}
