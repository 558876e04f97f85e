package users

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dmindex/dmindex/pkg/keyrange"
)

// Limits of an ACL file. A Secret holds at most 1 MiB.
const (
	mostBytes     = 1 << 20
	mostUsers     = 4096
	mostPasswords = 16 // of one user
	mostPrefixes  = 64 // of one user
	mostChannels  = 64 // rules of one user
)

// table is one state of the users, by name.
type table struct {
	users map[string]*User
}

// Parse reads an ACL file as Redis writes it: a line for each user, "user NAME RULE ...". Empty
// lines and lines that begin with "#" are skipped. The rules, in their order:
//
//	on, off               the user may log in, or may not
//	>PASSWORD, <PASSWORD  adds a password, takes it away
//	#HEX, !HEX            the same by the SHA-256 of the password
//	nopass, resetpass     every password is right; no password is
//	~PREFIX*, allkeys     adds the keys that begin with PREFIX; all keys (also ~*)
//	%R~PREFIX*, %W~, %RW~ the same for reading only, for writing only, for both
//	resetkeys             takes all keys away
//	&PREFIX*, allchannels adds the channels that begin with PREFIX; all channels (also &*)
//	&NAME                 adds one channel
//	resetchannels         takes all channels away
//	+@all, allcommands    reading, writing and channels (+@read, +@write, +@pubsub: one of them)
//	-@all, nocommands     none of them (-@read, -@write, -@pubsub: not that one)
//	reset                 as a new user is: off, no passwords, no keys, no channels, no commands
//
// The user default begins with all channels, as in Redis. Other rules of Redis, such as those for
// single commands, are refused, since a server that ignored them would allow more than the file
// says. An error names the line, and no password.
func Parse(text []byte) (map[string]*User, error) {
	if len(text) > mostBytes {
		return nil, fmt.Errorf("the ACL file has %d bytes; at most %d are read", len(text), mostBytes)
	}
	users := map[string]*User{}
	for i, line := range strings.Split(string(text), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if words[0] != "user" || len(words) < 2 {
			return nil, fmt.Errorf("line %d of the ACL file does not begin with \"user NAME\"", i+1)
		}
		name := words[1]
		if users[name] != nil {
			return nil, fmt.Errorf("line %d of the ACL file: the user %q is there twice", i+1, name)
		}
		if len(users) == mostUsers {
			return nil, fmt.Errorf("the ACL file has more than %d users", mostUsers)
		}
		u := &User{name: name}
		if name == DefaultName {
			u.channels = everyChannel()
		}
		for n, rule := range words[2:] {
			if err := u.apply(rule); err != nil {
				return nil, fmt.Errorf("line %d of the ACL file, rule %d of the user %q: %w", i+1, n+1, name, err)
			}
		}
		users[name] = u
	}
	return users, nil
}

// apply changes a user by one rule.
func (u *User) apply(rule string) error {
	switch rule {
	case "on":
		u.enabled = true
	case "off":
		u.enabled = false
	case "nopass":
		u.anyone, u.passwords = true, nil
	case "resetpass":
		u.anyone, u.passwords = false, nil
	case "allkeys":
		u.keys = everything()
	case "resetkeys":
		u.keys = nil
	case "allcommands", "+@all":
		u.read, u.write, u.messages = true, true, true
	case "nocommands", "-@all":
		u.read, u.write, u.messages = false, false, false
	case "+@read":
		u.read = true
	case "-@read":
		u.read = false
	case "+@write":
		u.write = true
	case "-@write":
		u.write = false
	case "+@pubsub":
		u.messages = true
	case "-@pubsub":
		u.messages = false
	case "allchannels":
		u.channels = everyChannel()
	case "resetchannels":
		u.channels = nil
	case "reset":
		*u = User{name: u.name}
	default:
		return u.applyPrefixed(rule)
	}
	return nil
}

// applyPrefixed is for rules with an argument.
func (u *User) applyPrefixed(rule string) error {
	switch rest := rule[1:]; rule[0] {
	case '>':
		return u.addPassword(sha256.Sum256([]byte(rest)))
	case '<':
		u.takePassword(sha256.Sum256([]byte(rest)))
		return nil
	case '#', '!':
		d, err := parseDigest(rest)
		if err != nil {
			return err
		}
		if rule[0] == '!' {
			u.takePassword(d)
			return nil
		}
		return u.addPassword(d)
	case '&':
		return u.addChannels(rest)
	case '~':
		return u.addKeys(rest, true, true)
	case '%':
		kind, pattern, _ := strings.Cut(rest, "~")
		switch strings.ToUpper(kind) {
		case "R":
			return u.addKeys(pattern, true, false)
		case "W":
			return u.addKeys(pattern, false, true)
		case "RW", "WR":
			return u.addKeys(pattern, true, true)
		}
		return fmt.Errorf("%.64q is not a rule for keys: use %%R~, %%W~ or %%RW~", rule)
	case '+', '-':
		return fmt.Errorf("%.64q: rights are given by @read, @write, @pubsub and @all only; say +@read for a user that may not write", rule)
	}
	return errors.New("there is no such rule; see docs/security.md for those that are known")
}

func parseDigest(text string) (d digest, err error) {
	if len(text) != hex.EncodedLen(len(d)) {
		return d, fmt.Errorf("a digest has %d hexadecimal digits (SHA-256), this one has %d", hex.EncodedLen(len(d)), len(text))
	}
	if _, err := hex.Decode(d[:], []byte(text)); err != nil {
		return d, errors.New("a digest has hexadecimal digits only")
	}
	return d, nil
}

// noPassword is the digest of an empty password.
var noPassword = digest(sha256.Sum256(nil))

func (u *User) addPassword(d digest) error {
	if d == noPassword {
		return errors.New("the password is empty; say nopass if every password is right")
	}
	u.anyone = false
	if slices.Contains(u.passwords, d) {
		return nil
	}
	if len(u.passwords) == mostPasswords {
		return fmt.Errorf("a user has at most %d passwords", mostPasswords)
	}
	u.passwords = append(u.passwords, d)
	return nil
}

func (u *User) takePassword(d digest) {
	u.passwords = slices.DeleteFunc(u.passwords, func(have digest) bool { return have == d })
}

// addKeys adds the keys of a pattern, which must be a prefix and a star.
func (u *User) addKeys(pattern string, read, write bool) error {
	prefix, ok := strings.CutSuffix(pattern, "*")
	if !ok || strings.ContainsAny(prefix, `*?[]\`) {
		return fmt.Errorf("%.64q: keys are given by a prefix and one star at the end, such as ~orders:*", pattern)
	}
	if len(u.keys) == mostPrefixes {
		return fmt.Errorf("a user has at most %d prefixes", mostPrefixes)
	}
	u.keys = append(u.keys, keyRule{prefix: []byte(prefix), end: keyrange.PrefixEnd([]byte(prefix)), read: read, write: write})
	return nil
}

// addChannels adds the channels of a pattern, which must be a name, or a prefix and a star.
func (u *User) addChannels(pattern string) error {
	name, begin := strings.CutSuffix(pattern, "*")
	if strings.ContainsAny(name, `*?[]\`) {
		return fmt.Errorf("%.64q: channels are given by a name, or by a prefix and one star at the end, such as &orders:*", pattern)
	}
	if len(u.channels) == mostChannels {
		return fmt.Errorf("a user has at most %d rules for channels", mostChannels)
	}
	u.channels = append(u.channels, channelRule{[]byte(name), begin})
	return nil
}
