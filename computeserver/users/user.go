package users

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"slices"
)

// DefaultName is the user of a caller that gives a password and no name.
const DefaultName = "default"

// digest is the SHA-256 of a password.
type digest [sha256.Size]byte

// User is one user, with what it may do. It is not changed once it is in a table.
type User struct {
	name      string
	enabled   bool
	anyone    bool // "nopass": every password is right
	passwords []digest
	read      bool // may use commands that read
	write     bool // may use commands that write
	messages  bool // may use commands on channels
	keys      []keyRule
	channels  []channelRule
}

// keyRule lets a user reach the keys that begin with a prefix.
type keyRule struct {
	prefix      []byte
	end         []byte // of the keys with the prefix; empty: they have no end
	read, write bool
}

// channelRule lets a user reach the channel of a name, or those whose names begin with it.
type channelRule struct {
	name  []byte
	begin bool
}

// everyChannel lets a user reach all channels.
func everyChannel() []channelRule { return []channelRule{{begin: true}} }

// everything is what the user default may do, unless the ACL file says otherwise.
func everything() []keyRule { return []keyRule{{read: true, write: true}} }

// Name of the user.
func (u *User) Name() string { return u.name }

// Places is how many connections there may be for the user to open another one, where there are so
// many places: an eighth of them is for the user default alone, so that no other user keeps it out.
func (u *User) Places(most int) int {
	if u.name == DefaultName {
		return most
	}
	return most - most/8
}

// MayRead reports whether the user may read the value of key, and learn whether it exists.
func (u *User) MayRead(key []byte) bool {
	if !u.read {
		return false
	}
	for i := range u.keys {
		if r := &u.keys[i]; r.read && bytes.HasPrefix(key, r.prefix) {
			return true
		}
	}
	return false
}

// MayWrite reports whether the user may change the value of key, and delete it.
func (u *User) MayWrite(key []byte) bool {
	if !u.write {
		return false
	}
	for i := range u.keys {
		if r := &u.keys[i]; r.write && bytes.HasPrefix(key, r.prefix) {
			return true
		}
	}
	return false
}

// May reports whether the user may do to key what reads it, changes it, or both.
func (u *User) May(read, change bool, key []byte) bool {
	return (!read || u.MayRead(key)) && (!change || u.MayWrite(key))
}

// MayReadRange reports whether the user may read all keys from start (inclusive) to end (exclusive,
// empty: no end): whether the range lies within the keys of one prefix that the user may read.
func (u *User) MayReadRange(start, end []byte) bool {
	if !u.read {
		return false
	}
	for i := range u.keys {
		r := &u.keys[i]
		within := len(r.end) == 0 || len(end) > 0 && bytes.Compare(end, r.end) <= 0
		if r.read && within && bytes.Compare(start, r.prefix) >= 0 {
			return true
		}
	}
	return false
}

// Readable is the first range of keys that the user may read, of those from start on: from where,
// up to where (exclusive, empty: no end). Keys have at most longest bytes. ok is false if there is
// none.
func (u *User) Readable(start []byte, longest int) (from, end []byte, ok bool) {
	for i := range u.keys {
		r := &u.keys[i]
		if !u.read || !r.read || len(r.prefix) > longest || len(r.end) > 0 && bytes.Compare(start, r.end) >= 0 {
			continue
		}
		at := start
		if bytes.Compare(start, r.prefix) < 0 {
			at = r.prefix
		}
		further := len(end) > 0 && (len(r.end) == 0 || bytes.Compare(r.end, end) > 0)
		if c := bytes.Compare(at, from); !ok || c < 0 || c == 0 && further {
			from, end, ok = at, r.end, true
		}
	}
	return from, end, ok
}

// MayUseChannels reports whether the user may use commands on channels at all.
func (u *User) MayUseChannels() bool { return u.messages }

// MayUseChannel reports whether the user may subscribe to a channel, and publish on it.
func (u *User) MayUseChannel(channel []byte) bool {
	return u.messages && slices.ContainsFunc(u.channels, func(r channelRule) bool {
		return bytes.HasPrefix(channel, r.name) && (r.begin || len(channel) == len(r.name))
	})
}

// MayUseChannelsFrom reports whether the user may subscribe to every channel whose name begins with
// a prefix.
func (u *User) MayUseChannelsFrom(prefix []byte) bool {
	return u.messages && slices.ContainsFunc(u.channels, func(r channelRule) bool {
		return r.begin && bytes.HasPrefix(prefix, r.name)
	})
}

// Channels are the channels that the user may use: each a name, or the beginning of names and a
// star.
func (u *User) Channels() (all [][]byte) {
	if !u.messages {
		return nil
	}
	for _, r := range u.channels {
		name := bytes.Clone(r.name)
		if r.begin {
			name = append(name, '*')
		}
		all = append(all, name)
	}
	return all
}

// ReadsAll reports whether the user may read every key.
func (u *User) ReadsAll() bool { return u.MayRead(nil) }

// Prefixes are where the keys begin that the user may read or write. They are not to be changed.
func (u *User) Prefixes() [][]byte {
	all := make([][]byte, len(u.keys))
	for i := range u.keys {
		all[i] = u.keys[i].prefix
	}
	return all
}

// hasPassword reports whether a password is one of the user's, in a time that does not depend on
// it.
func (u *User) hasPassword(d digest) bool {
	good := 0
	for i := range u.passwords {
		good |= subtle.ConstantTimeCompare(u.passwords[i][:], d[:])
	}
	return good == 1 || u.anyone
}
