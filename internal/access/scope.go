package access

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Scope is what a principal may do. Admin includes all others, and Submit includes Read.
// Work includes neither, and neither includes Work. [Scope.Allows] compares scopes.
type Scope int

// The scopes. The zero Scope is that of requests without valid credentials.
const (
	// None allows nothing.
	None Scope = iota
	// Work allows using the API for workers, and nothing else.
	Work
	// Read allows reading everything except keys, webhooks and the audit log.
	Read
	// Submit also allows adding tasks, and uploading files for them.
	Submit
	// Admin allows everything.
	Admin
)

// Scopes are the names of all scopes that a key may have, for messages.
const Scopes = "read, submit, work or admin"

// ParseScope is the inverse of [Scope.String].
func ParseScope(s string) (Scope, error) {
	for _, scope := range []Scope{Read, Submit, Work, Admin} {
		if scope.String() == s {
			return scope, nil
		}
	}
	return None, fmt.Errorf("unknown scope %q; allowed: %s", s, Scopes)
}

// String is the name of the scope, as in the database.
func (s Scope) String() string {
	switch s {
	case Work:
		return "work"
	case Read:
		return "read"
	case Submit:
		return "submit"
	case Admin:
		return "admin"
	}
	return "none"
}

// Allows reports whether a principal with this scope may do what needs another.
func (s Scope) Allows(need Scope) bool {
	if s == Work || need == Work {
		return need == None || s == need || s == Admin
	}
	return s >= need
}

// Principal is the author of a request.
type Principal struct {
	// Name is unique: admin, read-only, local (without authentication), or the prefix
	// and name of an API key, such as "key k3j9x2mq (build server)". It is empty
	// without valid credentials.
	Name  string
	Scope Scope
}

// Submitter is the submitter of the principal's tasks, see store.Submission: the name of
// an API key. It is empty for other principals, as for tasks submitted with the command
// line: these have access to the database, too.
func (p Principal) Submitter() string {
	if strings.HasPrefix(p.Name, keyNamePrefix) {
		return p.Name
	}
	return ""
}

// KeyPrefix is the prefix of the principal's API key, from its name.
func (p Principal) KeyPrefix() (prefix string, ok bool) {
	rest, ok := strings.CutPrefix(p.Name, keyNamePrefix)
	prefix, _, _ = strings.Cut(rest, " ")
	return prefix, ok
}

// The reasons for rejecting a request, besides [TooManyFailuresError]. Any other error is one
// of the database.
var (
	// ErrNoCredentials means that there were no credentials, or that the session has ended.
	ErrNoCredentials = errors.New("credentials are needed")
	// ErrInvalidCredentials means that the credentials are not valid.
	ErrInvalidCredentials = errors.New("credentials are not valid")
	// ErrForbidden means that the principal's scope does not allow it.
	ErrForbidden = errors.New("not allowed")
	// ErrHostName means that, without authentication, the request used another host name:
	// a site could point its own name to this host.
	ErrHostName = errors.New("this is not the name of this host")
)

// errInvalidKey is for texts that have the form of a key.
var errInvalidKey = fmt.Errorf("%w: the key is unknown or revoked", ErrInvalidCredentials)

// disabledKeyError is for clients that have the whole key: nobody else learns its name and state.
func disabledKeyError(key Key) error {
	return fmt.Errorf("%w: the %s is disabled; on the server's host, cuelight keys enable %s%s accepts it again",
		ErrInvalidCredentials, key.PrincipalName(), keyMark, key.Prefix)
}

type contextKey struct{}

// identity is the result of [Guard.Identify].
type identity struct {
	credential
	session *session // that carried the credential; may be nil
	err     error    // without a principal
}

// PrincipalOf returns the principal of a request, or the zero Principal without valid credentials.
func PrincipalOf(ctx context.Context) Principal {
	id, _ := ctx.Value(contextKey{}).(identity)
	return id.principal
}

// LabelsOf returns the labels of a request's key; see [KeyStore.CreateKey].
func LabelsOf(ctx context.Context) []string {
	id, _ := ctx.Value(contextKey{}).(identity)
	return id.labels
}

// Check returns nil if the principal of a request has the scope, otherwise the reason.
func Check(ctx context.Context, need Scope) error {
	id, _ := ctx.Value(contextKey{}).(identity)
	switch {
	case id.principal.Scope.Allows(need):
		return nil
	case id.principal.Scope > None:
		return fmt.Errorf("%w: this needs the scope %s, and %s has %s",
			ErrForbidden, need, id.principal.Name, id.principal.Scope)
	case id.err != nil:
		return id.err
	}
	return ErrNoCredentials
}
