//env:real connections of the machine's network, and pauses

package resp

import (
	"errors"
	"net"
	"time"

	"github.com/dmindex/dmindex/computeserver/users"
	"github.com/dmindex/dmindex/pkg/accept"
)

// A connection that has not authenticated has a place in the lobby, for Config.AuthLimit from when
// it was accepted, and takes none of those that have. It is in the lobby exactly while it has not.

// Bounds of connections that have not authenticated. A client that knows the password says so at
// once, and needs little for that.
const (
	maxAnonymousConns = 1024
	anonymousBuffer   = 1 << 10  // for reading, to begin with
	anonymousFlushAt  = 4 << 10  // replies are sent when there are as many bytes
	maxAnonymousBytes = 64 << 10 // of commands
)

// errAnonymous ends a connection that sends much and does not authenticate.
const errAnonymous = protocolError("too many bytes before AUTH")

const tooManyClients = "ERR max number of clients reached"

var errTooMany = errors.New(tooManyClients)

// enterLobby begins a connection: in the lobby if there is a password. s.mu is held.
func (c *conn) enterLobby() {
	s := c.s
	var open bool
	if c.login, open = s.users.Anyone(); open {
		s.authed++
		c.belong(users.DefaultName)
		c.in = make([]byte, 0, respBuffer)
		return
	}
	c.place = s.lobby.Enter(c.from, c.leaveLobby)
	c.in = make([]byte, 0, anonymousBuffer)
}

// leaveLobby ends a connection that lost its place in the lobby.
func (c *conn) leaveLobby() {
	_ = c.nc.Close() // whatever it says, the connection is over
	close(c.gone)
}

// belong makes the connection one of the user of this name; of nobody, if it is empty.
func (c *conn) belong(name string) {
	c.account.belong(name)
	if c.sub != nil {
		c.sub.belong(name)
	}
	c.who.user.Store(&name)
}

// promote counts a connection among those that have authenticated, as a user. Errors: errTooMany;
// net.ErrClosed where it lost its place in the lobby already.
func (s *Server) promote(c *conn, u *users.User) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case c.place == nil:
		return nil
	case s.authed >= u.Places(s.limits.Load().MaxConnections):
		return errTooMany
	case !c.place.Leave():
		return net.ErrClosed
	}
	c.place = nil
	s.authed++
	return nil
}

// demote is the way back: the connection has to authenticate anew, within as long.
func (s *Server) demote(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	login, open := s.users.Anyone()
	c.login = login
	if open {
		c.belong(users.DefaultName)
	}
	if c.place != nil || open {
		return
	}
	c.anonymous = 0
	s.authed--
	c.belong("")
	c.place = s.lobby.Enter(c.from, c.leaveLobby)
}

// forgetLocked counts a connection no more.
func (s *Server) forgetLocked(c *conn) {
	if c.place != nil {
		c.place.Leave()
	} else {
		s.authed--
	}
	delete(s.conns, c.id)
}

// logIn checks [username] password; a refusal is replied, and changes nothing. Without a configured
// password the user default has any.
func (c *conn) logIn(args [][]byte) bool {
	user, password := users.DefaultName, args[len(args)-1]
	if len(args) == 2 {
		user = string(args[0])
	}
	if !c.authed() {
		c.pause(c.s.logins.Wait(c.from))
	}
	login, ok := c.s.users.Login(user, password)
	if !ok {
		c.s.logins.Failed(c.from)
		c.wrong++
		c.closing = c.closing || c.wrong >= accept.MostWrong
		c.logFailed()
		c.replyError("WRONGPASS invalid username-password pair or user is disabled.")
		return false
	}
	if err := c.s.promote(c, login.User()); err != nil {
		c.closing = true
		if errors.Is(err, errTooMany) {
			c.s.core.Count.Refused.Add(1)
			c.replyError(tooManyClients)
		}
		return false
	}
	c.login = login
	c.heardAs = nil // this user may have been looked at before another one subscribed
	c.belong(login.User().Name())
	return true
}

// pause waits, or until the connection loses its place.
func (c *conn) pause(d time.Duration) {
	if d == 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-c.gone:
	case <-t.C:
	}
}

// failedLogEvery is how often a failed login is worth a line of the log.
const failedLogEvery = time.Minute

func (c *conn) logFailed() {
	now := time.Now().UnixNano()
	if last := c.s.failedSeen.Load(); now-last > int64(failedLogEvery) && c.s.failedSeen.CompareAndSwap(last, now) {
		c.s.core.Log.Warn("a RESP client showed a wrong password; more are counted, and not logged for a minute",
			"client", c.who.address, "failed_logins", c.s.logins.Total())
	}
}

// Anonymous are the connections that have not authenticated: how many there are, and how many were
// ended, ever, for that.
func (s *Server) Anonymous() (open int, ended uint64) { return s.lobby.Open(), s.lobby.Ended() }
