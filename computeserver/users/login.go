package users

import "crypto/sha256"

// Login is a user that showed a password, on one connection or for one call. It belongs to one
// goroutine at a time. The zero Login is nobody's: it may do nothing.
type Login struct {
	dir      *Directory
	seen     *table // in which user is
	user     *User
	password digest // that was shown
}

// Login checks a name and a password. It takes as long for a name that there is not as for a wrong
// password.
func (d *Directory) Login(name string, password []byte) (Login, bool) {
	l := Login{dir: d, seen: d.current.Load(), password: sha256.Sum256(password)}
	u := l.seen.users[name]
	if u == nil {
		(&nobody).hasPassword(l.password)
		return Login{}, false
	}
	if good := u.hasPassword(l.password); !good || !u.enabled {
		return Login{}, false
	}
	l.user = u
	return l, true
}

// nobody stands in for a user that there is not.
var nobody = User{passwords: []digest{{}}}

// Anyone logs in as the user default where there is no password.
func (d *Directory) Anyone() (Login, bool) {
	if d.Required() {
		return Login{}, false
	}
	return d.Login(DefaultName, nil)
}

// User is who logged in, with the rights as of the last Renew, or nil.
func (l *Login) User() *User { return l.user }

// Renew takes the rights that the user has now. It reports false when the user is gone or disabled,
// or the password that was shown is not one of its passwords any more: then the login is nobody's,
// and its connection is to be ended. It does nothing as long as no file has changed.
func (l *Login) Renew() bool {
	if l.user == nil {
		return false
	}
	now := l.dir.current.Load()
	if now == l.seen {
		return true
	}
	u := now.users[l.user.name]
	if u == nil || !u.enabled || !u.hasPassword(l.password) {
		*l = Login{}
		return false
	}
	l.seen, l.user = now, u
	return true
}
