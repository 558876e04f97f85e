package users_test

import (
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dmindex/dmindex/computeserver/users"
)

// files is a folder whose files are swapped as the kubelet swaps them: by a rename.
type files struct {
	t   *testing.T
	dir string
}

func (f files) path(name string) string { return filepath.Join(f.dir, name) }

func (f files) write(name, text string) string {
	f.t.Helper()
	if err := os.WriteFile(f.path(name+".new"), []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if err := os.Rename(f.path(name+".new"), f.path(name)); err != nil {
		f.t.Fatal(err)
	}
	return f.path(name)
}

func open(t *testing.T, cfg users.Config) *users.Directory {
	t.Helper()
	d, err := users.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func login(t *testing.T, d *users.Directory, name, password string) users.Login {
	t.Helper()
	l, ok := d.Login(name, []byte(password))
	if !ok {
		t.Fatalf("%q cannot log in with %q", name, password)
	}
	return l
}

func refused(t *testing.T, d *users.Directory, name, password string) {
	t.Helper()
	if l, ok := d.Login(name, []byte(password)); ok || l.User() != nil {
		t.Fatalf("%q can log in with %q", name, password)
	}
}

func TestNoPassword(t *testing.T) {
	d := open(t, users.Config{})
	if l := login(t, d, "default", "any"); !l.User().MayWrite([]byte("k")) {
		t.Error("the user default may not write")
	}
	refused(t, d, "other", "any")
	if l, ok := d.Anyone(); !ok || !l.Renew() {
		t.Error("a password is asked for where there is none")
	}
}

func TestPasswordFile(t *testing.T) {
	f := files{t, t.TempDir()}
	d := open(t, users.Config{PasswordFile: f.write("password", "one\n")})
	refused(t, d, "default", "")
	refused(t, d, "default", "one\n")
	refused(t, d, "other", "one")
	if _, ok := d.Anyone(); ok {
		t.Error("everybody may log in without a password")
	}
	l := login(t, d, "default", "one")
	if !l.Renew() || d.Look() || !l.Renew() {
		t.Fatal("the login ended, and nothing had changed")
	}

	f.write("password", "number two")
	if !d.Look() {
		t.Fatal("the new file was not read")
	}
	refused(t, d, "default", "one")
	login(t, d, "default", "number two")
	if l.Renew() || l.User() != nil {
		t.Fatal("a login goes on with a password that is not right any more")
	}

	// A file that cannot be read leaves everything as it is, and says so.
	f.write("password", " ")
	if d.Look() || d.Err() == nil || !strings.Contains(d.Err().Error(), "is empty") {
		t.Fatalf("an empty file: %v", d.Err())
	}
	login(t, d, "default", "number two")
	f.write("password", "three33")
	if !d.Look() || d.Err() != nil {
		t.Fatalf("the mended file: %v", d.Err())
	}
	login(t, d, "default", "three33")
}

// TestTwoPasswords is a rotation: both are right for a while, and only logins with the old one end.
func TestTwoPasswords(t *testing.T) {
	f := files{t, t.TempDir()}
	line := func(rules string) string { return "user default on ~* +@all" + rules + "\n" }
	d := open(t, users.Config{DefaultFile: f.write("default.acl", line(" #"+digest("old")))})
	before := d.Digest()
	old := login(t, d, "default", "old")

	f.write("default.acl", line(" #"+digest("old")+" #"+digest("new")))
	if !d.Look() || d.Digest() == before {
		t.Fatal("the new file was not read")
	}
	if !old.Renew() {
		t.Fatal("the old password is right for a while")
	}
	fresh := login(t, d, "default", "new")

	f.write("default.acl", line(" #"+digest("new")))
	if !d.Look() {
		t.Fatal("the new file was not read")
	}
	if old.Renew() {
		t.Error("a login with the old password goes on")
	}
	if !fresh.Renew() || !fresh.User().MayWrite([]byte("k")) {
		t.Error("a login with the new password ended")
	}
}

// TestDefaultFileAppears: the ACL file counts as soon as it is there, and the password file again
// when it is gone.
func TestDefaultFileAppears(t *testing.T) {
	f := files{t, t.TempDir()}
	d := open(t, users.Config{PasswordFile: f.write("password", "p"), DefaultFile: f.path("default.acl")})
	login(t, d, "default", "p")
	if d.Digest() != [32]byte{} {
		t.Error("there is a digest of a file that is not there")
	}
	f.write("default.acl", "user default on >q ~* +@all")
	if !d.Look() || d.Digest() == [32]byte{} {
		t.Fatal("the new file was not read")
	}
	refused(t, d, "default", "p")
	login(t, d, "default", "q")
	if err := os.Remove(f.path("default.acl")); err != nil {
		t.Fatal(err)
	}
	if !d.Look() || d.Digest() != [32]byte{} {
		t.Fatal("the password file does not count again")
	}
	login(t, d, "default", "p")
	refused(t, d, "default", "q")
}

func TestUsersFile(t *testing.T) {
	f := files{t, t.TempDir()}
	d := open(t, users.Config{PasswordFile: f.write("password", "p"), UsersFile: f.path("users.acl")})
	if d.Err() != nil {
		t.Fatalf("there are no further users, which is right: %v", d.Err())
	}
	if d.Look() {
		t.Error("nothing changed, and users are other ones")
	}
	f.write("users.acl", "user report on >r ~orders:* +@read\nuser gone off >g ~* +@all\n")
	if !d.Look() {
		t.Fatal("the file was not read")
	}
	login(t, d, "default", "p")
	refused(t, d, "report", "p")
	refused(t, d, "gone", "g")
	l := login(t, d, "report", "r")
	if u := l.User(); !u.MayRead([]byte("orders:1")) || u.MayWrite([]byte("orders:1")) || u.ReadsAll() {
		t.Error("the rights are not those of the file")
	}

	f.write("users.acl", "user report on >r ~orders:* +@all\n")
	if d.Look(); !l.Renew() || !l.User().MayWrite([]byte("orders:1")) {
		t.Error("the new rights do not count for a login that there was")
	}

	// A typo leaves the users as they are.
	f.write("users.acl", "user report on >r ~orders:* +@al\n")
	if d.Look() || d.Err() == nil || !strings.Contains(d.Err().Error(), "line 1") {
		t.Fatalf("a typo: %v", d.Err())
	}
	if !l.Renew() {
		t.Error("a typo ended a login")
	}
	f.write("users.acl", "user default on >r ~* +@all\n")
	if d.Look() || d.Err() == nil || !strings.Contains(d.Err().Error(), `"default" cannot be in this file`) {
		t.Fatalf("the user default in the file of further users: %v", d.Err())
	}

	if err := os.Remove(f.path("users.acl")); err != nil {
		t.Fatal(err)
	}
	if !d.Look() || d.Err() != nil || l.Renew() {
		t.Errorf("the file is gone, and so are its users: %v", d.Err())
	}
	login(t, d, "default", "p")
}

// TestObjectsFile: the users of objects stand beside those of the other file, which has its own way
// with a name that is in both, off or on, and also while its newest content cannot be read.
func TestObjectsFile(t *testing.T) {
	f := files{t, t.TempDir()}
	d := open(t, users.Config{PasswordFile: f.write("password", "p"), UsersFile: f.path("users.acl"), ObjectsFile: f.path("objects.acl")})
	if d.Err() != nil || d.ObjectsDigest() != [32]byte{} {
		t.Fatalf("there are no objects, which is right: %v", d.Err())
	}
	const text = "user shop on >s ~* +@all\nuser both on >o ~* +@all\n"
	f.write("objects.acl", text)
	if !d.Look() || d.ObjectsDigest() != sha256.Sum256([]byte(text)) {
		t.Fatal("the file was not read")
	}
	shop, both := login(t, d, "shop", "s"), login(t, d, "both", "o")

	f.write("users.acl", "user both off >f ~a:* +@read\n")
	if !d.Look() || both.Renew() || !shop.Renew() {
		t.Fatal("the user of the object goes on in place of that of the file")
	}
	refused(t, d, "both", "o")
	refused(t, d, "both", "f")
	f.write("users.acl", "user both on >f ~a:* +@rea\n")
	if d.Look() || d.Err() == nil {
		t.Fatal("the typo was not found")
	}
	refused(t, d, "both", "o")
	f.write("users.acl", "user both on >f ~a:* +@read\n")
	d.Look()
	refused(t, d, "both", "o")
	if l := login(t, d, "both", "f"); l.User().ReadsAll() {
		t.Error("the object gives the user of the file its rights")
	}

	f.write("objects.acl", "user default on >o ~* +@all\n")
	if d.Look() || d.Err() == nil || !shop.Renew() {
		t.Errorf("the user default as an object: %v", d.Err())
	}
	refused(t, d, "default", "o")
	if err := os.Remove(f.path("objects.acl")); err != nil {
		t.Fatal(err)
	}
	if !d.Look() || shop.Renew() || d.ObjectsDigest() != [32]byte{} {
		t.Error("the file is gone, and a user of it is there")
	}
}

// TestBadUsersFileAtStart: the user default gets in, so somebody can mend it.
func TestBadUsersFileAtStart(t *testing.T) {
	f := files{t, t.TempDir()}
	d := open(t, users.Config{PasswordFile: f.write("password", "p"), UsersFile: f.write("users.acl", "user a +get\n")})
	if d.Err() == nil {
		t.Error("the bad file is not spoken of")
	}
	login(t, d, "default", "p")
	refused(t, d, "a", "")
}

func TestOpenRefuses(t *testing.T) {
	f := files{t, t.TempDir()}
	bad := func(cfg users.Config, want string) {
		t.Helper()
		if _, err := users.Open(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", cfg, err, want)
		}
	}
	bad(users.Config{PasswordFile: f.path("missing")}, "no such file")
	bad(users.Config{PasswordFile: f.write("empty", "\n")}, "is empty")
	bad(users.Config{UsersFile: f.write("users.acl", "user a on")}, "name that too")
	bad(users.Config{ObjectsFile: f.path("users.acl")}, "name that too")
	bad(users.Config{DefaultFile: f.write("none", "user default on")}, "with a password, and no other")
	bad(users.Config{DefaultFile: f.write("two", "user default on >p\nuser b on")}, "with a password, and no other")
	bad(users.Config{DefaultFile: f.write("other", "user b on >p")}, "with a password, and no other")
}

func TestRenewDoesNotAllocate(t *testing.T) {
	d := open(t, users.Config{})
	l := login(t, d, "default", "")
	if n := testing.AllocsPerRun(100, func() { l.Renew() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestHalfWrittenFile: a file that is written in place counts when it stands still. Half of a rule
// would allow more than the whole.
func TestHalfWrittenFile(t *testing.T) {
	f := files{t, t.TempDir()}
	inPlace := func(text string) {
		if err := os.WriteFile(f.path("users.acl"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const whole = "user report on >r ~orders:* +@all -@write\n"
	half := strings.TrimSuffix(whole, " -@write\n")
	inPlace(half)
	d := open(t, users.Config{PasswordFile: f.write("password", "p"), UsersFile: f.path("users.acl")})
	refused(t, d, "report", "r")
	if err := d.Err(); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Errorf("half of a file at the start: %v", err)
	}
	inPlace(whole)
	if d.Look() {
		t.Error("a file that was just written counts")
	}
	if !d.Look() || d.Err() != nil {
		t.Fatalf("the file stands still, and does not count: %v", d.Err())
	}
	l := login(t, d, "report", "r")
	mayWrite := func() bool { return l.Renew() && l.User().MayWrite([]byte("orders:1")) }
	for _, text := range []string{"", "user repo", half} {
		if inPlace(text); d.Look() || !l.Renew() || mayWrite() {
			t.Errorf("%q counts though it is half written", text)
		}
	}
	inPlace(strings.Replace(whole, " -@write", "", 1))
	d.Look()
	if d.Look(); !mayWrite() {
		t.Error("the new rights do not count")
	}
	if f.write("users.acl", whole); !d.Look() || mayWrite() {
		t.Error("a file that took the place of the other one does not count at once")
	}
}
