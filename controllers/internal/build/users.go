package build

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"

	"github.com/dmindex/dmindex/api/config"
	dmv1 "github.com/dmindex/dmindex/api/v1alpha1"
)

// Keys of the Secret <name>-user, besides those of the Secret <index>-conn.
const (
	KeyUsername = "username"
	KeyPort     = "port" // of RESP
	KeyURI      = "uri"  // for Redis clients
)

// UserSecret is what a program needs to use an index as a user: all that the Secret <index>-conn
// has, with the user's password in place of that of the user default.
func UserSecret(user *dmv1.DMUser, conn *corev1.Secret, password string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: meta(UserSecretName(user.Name), user.Namespace, map[string]string{dmv1.LabelUser: user.Name})}
	s.Data = map[string][]byte{}
	for _, key := range []string{KeyCA, KeyHost, KeyRESP, KeyRPC, KeyRESPTLS, KeyExternalRESP, KeyExternalRPC} {
		if value, ok := conn.Data[key]; ok {
			s.Data[key] = value
		}
	}
	uri := url.URL{Scheme: "redis", User: url.UserPassword(user.UserName(), password), Host: string(conn.Data[KeyRESP])}
	if len(conn.Data[KeyRESPTLS]) > 0 {
		uri.Scheme = "rediss"
	}
	s.Data[KeyUsername] = []byte(user.UserName())
	s.Data[KeyPassword] = []byte(password)
	s.Data[KeyPort] = []byte(strconv.Itoa(config.PortRESP))
	s.Data[KeyURI] = []byte(uri.String())
	return s
}

// KeyUsersState is what the operator knows of the passwords of DMUsers, beside KeyUsersACL.
const KeyUsersState = "users.json"

// ObjectsSecret has the ACL file with the users of all DMUsers of an index.
func ObjectsSecret(index *dmv1.DMIndex, acl string, state []byte) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: meta(ObjectsName(index.Name), index.Namespace, nil)}
	s.Data = map[string][]byte{KeyUsersACL: []byte(acl), KeyUsersState: state}
	return s
}

// ObjectsACL is the ACL file of lines (UserLine), in the order of the users' names.
func ObjectsACL(lines []string) string {
	lines = slices.Clone(lines)
	slices.Sort(lines)
	return "# The operator writes this file from the DMUsers of the index.\n" + strings.Join(lines, "")
}

// UserLine is the line of a user in an ACL file (computeserver/users).
func UserLine(name, rules string, digests []string) string {
	return "user " + name + " on #" + strings.Join(digests, " #") + " " + rules + "\n"
}

// UserRules are the rules of a user in an ACL file: what it may do, and nothing of its passwords.
// An error says what of the user cannot be a rule for an index of this kind, and what to write.
func UserRules(user *dmv1.DMUser, index *dmv1.DMIndex) (string, error) {
	if !isWord(user.UserName()) {
		return "", fmt.Errorf("the name %.80q has characters that users cannot have: write letters, digits, dots and dashes", user.UserName())
	}
	var rules []string
	read, write := false, false
	keys := func(prefix string, access dmv1.UserAccess) error {
		reads, writes := access == dmv1.AccessRead || access == dmv1.AccessReadWrite, access == dmv1.AccessWrite || access == dmv1.AccessReadWrite
		read, write = read || reads, write || writes
		switch {
		case reads && writes:
			rules = append(rules, "~"+prefix+"*")
		case reads:
			rules = append(rules, "%R~"+prefix+"*")
		case writes:
			rules = append(rules, "%W~"+prefix+"*")
		default:
			return fmt.Errorf("access %.80q is not known: write Read, Write or ReadWrite", access)
		}
		return nil
	}
	if access := user.Spec.AllKeys; access != "" {
		if err := keys("", access); err != nil {
			return "", err
		}
	}
	for _, k := range user.Spec.Keys {
		key := index.Spec.Key
		switch {
		case !isWord(k.Prefix):
			return "", fmt.Errorf("the prefix %.80q cannot be one of keys: write their beginning, without a star or white space, or allKeys", k.Prefix)
		case key.Type == dmv1.KeyUint64:
			return "", fmt.Errorf("index %s has keys of type Uint64, which have no prefixes: write allKeys in place of keys", index.Name)
		case key.MaxLength != nil && len(k.Prefix) > int(*key.MaxLength):
			return "", fmt.Errorf("the prefix %.80q has %d bytes, and the keys of index %s at most %d: write a shorter one", k.Prefix, len(k.Prefix), index.Name, *key.MaxLength)
		}
		if err := keys(k.Prefix, k.Access); err != nil {
			return "", err
		}
	}
	if read {
		rules = append(rules, "+@read")
	}
	if write {
		rules = append(rules, "+@write")
	}
	if user.Spec.AllChannels || len(user.Spec.Channels) > 0 {
		rules = append(rules, "+@pubsub")
	}
	if user.Spec.AllChannels {
		rules = append(rules, "allchannels")
	}
	for _, c := range user.Spec.Channels {
		name, star := c.Name, ""
		if c.Prefix != "" {
			name, star = c.Prefix, "*"
		}
		if !isWord(name) {
			return "", fmt.Errorf("%.80q cannot be the name of a channel, or the beginning of names: write it without a star or white space, or allChannels", name)
		}
		rules = append(rules, "&"+name+star)
	}
	return strings.Join(rules, " "), nil
}

// isWord reports whether a text is one word of an ACL file and no pattern. The API server refuses
// others; a text that got past it must not become two rules, or two users.
func isWord(text string) bool {
	return text != "" && !strings.ContainsAny(text, `*?[]\`) && !strings.ContainsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || r == unicode.ReplacementChar
	})
}
