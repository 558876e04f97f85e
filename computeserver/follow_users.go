//env:real looks at mounted files

package computeserver

import (
	"context"
	"time"

	"github.com/dmindex/dmindex/computeserver/users"
)

// followUsers looks at the files of users until ctx ends. When they changed, connections whose
// password is not right any more are cut.
func (s *Server) followUsers(ctx context.Context) {
	tick := time.NewTicker(users.LookEvery)
	defer tick.Stop()
	said := ""
	say := func() {
		now := ""
		if err := s.users.Err(); err != nil {
			now = err.Error()
		}
		switch {
		case now == said:
		case now == "":
			s.core.Log.Info("the users can be read again")
		default:
			s.core.Log.Error("the users cannot be read; those of before stay", "error", now)
		}
		said = now
	}
	say()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s.users.Look() {
			s.core.Log.Info("read the users anew")
			s.resp.Recheck()
		}
		say()
	}
}
