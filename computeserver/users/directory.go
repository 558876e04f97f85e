//env:real reads mounted files now and then

package users

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmindex/dmindex/pkg/identity"
)

// LookEvery is how often the files are to be looked at ([Directory.Look]).
const LookEvery = time.Second

// Config says where the users stand.
type Config struct {
	// PasswordFile has the password of the user default, in the clear. White space at its end does
	// not count. For servers on one machine.
	PasswordFile string
	// DefaultFile is an ACL file ([Parse]) with the user default and no other, as the operator
	// writes it. It counts in place of PasswordFile whenever it is there.
	DefaultFile string
	// UsersFile is an ACL file with further users. It may be missing: then there are none. It may
	// be given with one of the other two only.
	UsersFile string
	// ObjectsFile is an ACL file with further users, as the operator writes it from DMUser objects.
	// It may be missing, and needs one of the first two as well. A name that UsersFile has is the
	// user of UsersFile: an object cannot widen the rights of a user that stands there.
	ObjectsFile string
}

// Directory knows the users of an index. Safe for concurrent use.
type Directory struct {
	cfg     Config
	current atomic.Pointer[table]

	mu            sync.Mutex // of looking
	first         source     // PasswordFile or DefaultFile
	more          source     // UsersFile
	objects       source     // ObjectsFile
	digest        [sha256.Size]byte
	objectsDigest [sha256.Size]byte
}

// source is one file with its users.
type source struct {
	path     string
	optional bool // it may be missing, which is as if it were empty
	read     bool // stamp and users are those of a look
	stamp    stamp
	users    map[string]*User
	err      error

	info    os.FileInfo // of the file at the last look; nil = it was not there
	pending stamp       // of a content that may be half written, at the last look
}

// stamp tells one content of a file from another without reading it.
type stamp struct {
	path    string
	changed time.Time
	size    int64
}

// Open reads the files. Without a PasswordFile and a DefaultFile everybody is the user default and
// may do everything. A bad PasswordFile or DefaultFile is an error. A bad UsersFile is not, since
// the user default must be able to get in: its users cannot log in before it is mended, and
// [Directory.Err] says why.
func Open(cfg Config) (*Directory, error) {
	d := &Directory{cfg: cfg}
	switch {
	case cfg.PasswordFile == "" && cfg.DefaultFile == "":
		if cfg.UsersFile != "" || cfg.ObjectsFile != "" {
			return nil, errors.New("there is a file with users and none with the password of the user default; name that too")
		}
		open := &User{name: DefaultName, enabled: true, anyone: true, read: true, write: true, messages: true, keys: everything(), channels: everyChannel()}
		d.current.Store(&table{users: map[string]*User{DefaultName: open}})
		return d, nil
	}
	d.more = source{path: cfg.UsersFile, optional: true}
	d.objects = source{path: cfg.ObjectsFile, optional: true}
	d.Look()
	if d.first.err != nil {
		return nil, d.first.err
	}
	return d, nil
}

// Required reports whether there is a password.
func (d *Directory) Required() bool { return d.cfg.PasswordFile != "" || d.cfg.DefaultFile != "" }

// Password is that of the user default, for calls between servers that have no certificates to
// show. It is empty if there is none, or only its digest is known.
func (d *Directory) Password() string {
	if d.cfg.PasswordFile == "" {
		return ""
	}
	text, err := os.ReadFile(d.cfg.PasswordFile)
	if err != nil {
		return ""
	}
	return identity.TrimPassword(string(text))
}

// Err is why a file could not be read when it was looked at last, or nil. The users are those of
// its former content then.
func (d *Directory) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(d.first.err, d.more.err, d.objects.err)
}

// Digest is the SHA-256 of the DefaultFile whose passwords count, or zero if PasswordFile counts.
// The operator compares it with what it wrote. Nobody else must learn it: a weak password can be
// found from it.
func (d *Directory) Digest() [sha256.Size]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.digest
}

// ObjectsDigest is the same of the ObjectsFile; zero if there is none.
func (d *Directory) ObjectsDigest() [sha256.Size]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.objectsDigest
}

// Look reads the files again if they changed. It reports whether the users are other ones now.
func (d *Directory) Look() bool {
	if !d.Required() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	changed := d.lookFirst()
	if d.more.path != "" && d.more.look(readMore) {
		changed = true
	}
	if d.objects.path != "" && d.objects.look(d.readObjects) {
		changed = true
	}
	if !changed {
		return false
	}
	users := map[string]*User{}
	maps.Copy(users, d.objects.users)
	maps.Copy(users, d.more.users)
	maps.Copy(users, d.first.users)
	d.current.Store(&table{users: users})
	return true
}

// lookFirst reads the file with the user default if it changed, or another one counts now.
func (d *Directory) lookFirst() bool {
	path, read := d.cfg.PasswordFile, d.readPassword
	if name := d.cfg.DefaultFile; name != "" {
		if _, err := os.Stat(name); path == "" || !errors.Is(err, os.ErrNotExist) {
			path, read = name, d.readDefault
		}
	}
	d.first.path = path
	return d.first.look(read)
}

// look reads the file if it changed, and reports whether its users are others now. After an error
// the users stay, and the file is read again at the next look.
//
// Half of a rule may allow more than the whole. So a file that is written in place counts once it
// is the same at two looks. A file that took the place of another one is whole: the kubelet, and
// whoever swaps it by a rename, wrote it before. An optional file that was not there before is
// whole if its last line ends.
func (s *source) look(parse func([]byte) (map[string]*User, error)) bool {
	info, err := os.Stat(s.path)
	now := stamp{}
	if err == nil {
		if now = (stamp{s.path, info.ModTime(), info.Size()}); now == s.stamp && s.err == nil {
			return false
		}
	}
	var data []byte
	if err == nil {
		data, err = os.ReadFile(s.path)
		before := s.info
		s.info = info
		inPlace := before != nil && os.SameFile(before, info)
		unended := before == nil && s.optional && len(data) > 0 && data[len(data)-1] != '\n'
		if err == nil && (inPlace || unended) && s.pending != now {
			if s.pending = now; unended {
				s.err = fmt.Errorf("read the users: the last line of %s does not end; the file counts if it is the same a second later", s.path)
			}
			return false
		}
	}
	if err != nil {
		s.info = nil
	}
	if s.optional && errors.Is(err, os.ErrNotExist) {
		if data, err = nil, nil; s.read && s.stamp == now && s.err == nil {
			return false
		}
	}
	var users map[string]*User
	if err == nil {
		users, err = parse(data)
	}
	if s.err = err; err != nil {
		s.err = fmt.Errorf("read the users: %w", err)
		return false
	}
	s.stamp, s.users, s.read = now, users, true
	return true
}

// readPassword reads the password of the user default.
func (d *Directory) readPassword(data []byte) (map[string]*User, error) {
	text := identity.TrimPassword(string(data))
	if len(text) == 0 {
		return nil, fmt.Errorf("%s is empty; it must have a password", d.cfg.PasswordFile)
	}
	d.digest = [sha256.Size]byte{}
	return map[string]*User{DefaultName: {
		name: DefaultName, enabled: true, read: true, write: true, messages: true, keys: everything(), channels: everyChannel(),
		passwords: []digest{sha256.Sum256([]byte(text))},
	}}, nil
}

// readDefault reads the ACL file with the user default.
func (d *Directory) readDefault(data []byte) (map[string]*User, error) {
	users, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if u := users[DefaultName]; len(users) != 1 || u == nil || len(u.passwords) == 0 {
		return nil, fmt.Errorf("%s must have the user %q with a password, and no other", d.cfg.DefaultFile, DefaultName)
	}
	d.digest = sha256.Sum256(data)
	return users, nil
}

// readMore reads the file with further users.
func readMore(data []byte) (map[string]*User, error) {
	users, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if users[DefaultName] != nil {
		return nil, fmt.Errorf("the user %q cannot be in this file: its passwords are those of the index's Secret", DefaultName)
	}
	return users, nil
}

// readObjects reads the file with the users that are objects; nil = there is none.
func (d *Directory) readObjects(data []byte) (map[string]*User, error) {
	users, err := readMore(data)
	if err != nil {
		return nil, err
	}
	d.objectsDigest = [sha256.Size]byte{}
	if data != nil {
		d.objectsDigest = sha256.Sum256(data)
	}
	return users, nil
}
