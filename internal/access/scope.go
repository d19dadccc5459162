package access

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/cuelight/cuelight/store"
)

// Scope is how much somebody may do. Each includes those before it.
type Scope int

// The scopes. The zero Scope is that of somebody unknown.
const (
	None   Scope = iota
	Read         // look at everything but keys, webhooks and the audit
	Submit       // add tasks, and upload files for them
	Admin        // everything
)

// ParseScope is the other half of [Scope.String].
func ParseScope(s string) (Scope, error) {
	for _, scope := range []Scope{Read, Submit, Admin} {
		if scope.String() == s {
			return scope, nil
		}
	}
	return None, fmt.Errorf("there is no scope %q", s)
}

// String is the scope's name, the one that keys have in the database.
func (s Scope) String() string {
	switch s {
	case Read:
		return store.ScopeRead
	case Submit:
		return store.ScopeSubmit
	case Admin:
		return store.ScopeAdmin
	}
	return "none"
}

// Principal is somebody who asks.
type Principal struct {
	// Name is different for everybody, and for people: admin, read-only, local
	// where nobody has to say who he is, or, of an API key, its prefix and name,
	// such as "key k3j9x2mq (build server)". It is empty for somebody unknown.
	Name  string
	Scope Scope
}

// Submitter is what tasks are marked with that somebody submits, see
// store.Submission: an API key's name. A caller who has the admin secret, or is let in
// without any, has the database as well, and submits like those who use that: as
// nobody.
func (p Principal) Submitter() string {
	if strings.HasPrefix(p.Name, keyName) {
		return p.Name
	}
	return ""
}

// KeyPrefix is the prefix of the API key that a principal is, from its name.
func (p Principal) KeyPrefix() (prefix string, ok bool) {
	rest, ok := strings.CutPrefix(p.Name, keyName)
	prefix, _, _ = strings.Cut(rest, " ")
	return prefix, ok
}

// Why somebody is refused, to be matched with [errors.Is]. A [Limited] is
// another reason; what is none of these is an error of the database.
var (
	// ErrUnknown: there were no credentials, or the session is over.
	ErrUnknown = errors.New("credentials are needed")
	// ErrWrong: the credentials are nobody's.
	ErrWrong = errors.New("credentials are not valid")
	// ErrScope: the principal may not do that.
	ErrScope = errors.New("not allowed")
	// ErrHost: where nobody has to say who he is, a page of some other site
	// that has its name lead here is not to be obeyed.
	ErrHost = errors.New("this is not the name of this host")
)

type contextKey struct{}

// identity is what [Guard.Identify] found.
type identity struct {
	who Principal
	why error // why it is nobody

	// By what it was found; see [Guard.Still].
	subject string
	digest  [sha256.Size]byte
	session *session
}

// From is the principal of a request, the zero one for somebody unknown.
func From(ctx context.Context) Principal {
	id, _ := ctx.Value(contextKey{}).(identity)
	return id.who
}

// Check returns nil where the principal of a request has the scope, and
// otherwise why not.
func Check(ctx context.Context, need Scope) error {
	id, _ := ctx.Value(contextKey{}).(identity)
	switch {
	case id.who.Scope >= need:
		return nil
	case id.who.Scope > None:
		return fmt.Errorf("%w: this needs the scope %s, and %s has %s", ErrScope, need, id.who.Name, id.who.Scope)
	case id.why != nil:
		return id.why
	}
	return ErrUnknown
}
