package storage

import (
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/minio/minio-go/v7"
)

// ErrConflict means that another writer was first: the document is not the version that the
// caller has read.
var ErrConflict = errors.New("another writer has changed the document")

// ErrCorrupt means that stored bytes are not those that were written.
var ErrCorrupt = errors.New("the stored content is damaged")

// Kind says which problem a ServiceError is.
type Kind string

// The kinds of problems.
const (
	Unavailable Kind = "unavailable" // 5xx
	Busy        Kind = "busy"        // asked to send fewer requests
	Cut         Kind = "cut"         // the connection ended
	Slow        Kind = "slow"        // no byte in time
	Refused     Kind = "refused"     // nothing listens
	Name        Kind = "name"        // the host name has no address
	Certificate Kind = "certificate" // not trusted
	Credentials Kind = "credentials" // missing or wrong
	Expired     Kind = "expired"     // credentials
	Denied      Kind = "denied"      // permissions
	Clock       Kind = "clock"       // clocks differ too much
	Full        Kind = "full"        // disk or quota
	NoBucket    Kind = "no bucket"
	Region      Kind = "region"
	Unsuitable  Kind = "unsuitable" // not S3, or without something that is needed
)

// ServiceError is a problem of this host or of the storage service. The task of the caller
// did not cause it, so its attempt should be postponed.
type ServiceError struct {
	Kind Kind
	Text string // one line that says what happened
	Hint string // what to do about it
	Err  error  // the cause; may be nil
}

func (e *ServiceError) Error() string { return e.Text + "; " + e.Hint }
func (e *ServiceError) Unwrap() error { return e.Err }

// wrap adds the act to an error of the service, after explaining it.
func (b *Bucket) wrap(ctx context.Context, err error, act, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", act, name, b.explain(ctx, err))
}

// explain translates an error of minio-go or of the network.
func (b *Bucket) explain(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*ServiceError](err); ok {
		return e
	}
	answer, isAnswer := errors.AsType[minio.ErrorResponse](err)
	if !isAnswer {
		if e := explainNetwork(b.address.Endpoint, err); e != nil {
			return e
		}
		return err
	}
	if e := b.explainAnswer(answer); e != nil {
		if e.Kind == Expired || e.Kind == Credentials {
			b.creds.Expire() // so that a file that was replaced is read again
		}
		return e
	}
	switch {
	case isConflict(answer):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	case isMissing(err):
		return fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return fmt.Errorf("%s: %w", answer.Code, err)
}

func isConflict(answer minio.ErrorResponse) bool {
	return answer.StatusCode == http.StatusPreconditionFailed || answer.StatusCode == http.StatusConflict
}

// kinds are those of the codes that services answer with.
var kinds = map[string]Kind{
	"NoSuchBucket": NoBucket, "InvalidBucketName": NoBucket,
	"InvalidAccessKeyId": Credentials, "XAdminUserNotFound": Credentials, "SignatureDoesNotMatch": Credentials,
	"InvalidClientTokenId": Credentials,
	"ExpiredToken":         Expired, "ExpiredTokenException": Expired, "InvalidToken": Expired, "TokenRefreshRequired": Expired,
	"AccessDenied": Denied, "AllAccessDisabled": Denied, "AccountProblem": Denied, "InvalidObjectState": Denied,
	"RequestTimeTooSkewed": Clock, "RequestExpired": Clock,
	"QuotaExceeded": Full, "XMinioStorageFull": Full, "XMinioAdminBucketQuotaExceeded": Full, "StorageFull": Full,
	"InsufficientStorage": Full, "InsufficientCapacity": Full, "ServiceQuotaExceeded": Full,
	"PermanentRedirect": Region, "AuthorizationHeaderMalformed": Region, "InvalidRegion": Region,
	"SlowDown": Busy, "SlowDownRead": Busy, "SlowDownWrite": Busy, "Throttling": Busy, "RequestLimitExceeded": Busy,
	"ThrottlingException": Busy, "RequestThrottled": Busy, "TooManyRequests": Busy,
	"RequestTimeout": Slow, "NotImplemented": Unsuitable, "APINotSupported": Unsuitable, "MethodNotAllowed": Unsuitable,
	"IncompleteBody": Cut, "XAmzContentSHA256Mismatch": Cut, "BadDigest": Cut,
}

// statuses are the kinds of answers without a known code.
var statuses = map[int]Kind{
	http.StatusInsufficientStorage: Full, http.StatusTooManyRequests: Busy,
	http.StatusForbidden: Denied, http.StatusUnauthorized: Credentials, http.StatusMovedPermanently: Region,
	http.StatusTemporaryRedirect: Region, http.StatusRequestTimeout: Slow, http.StatusNotImplemented: Unsuitable,
	http.StatusMethodNotAllowed: Unsuitable,
}

// explainAnswer returns nil if the answer is not a problem of the service.
func (b *Bucket) explainAnswer(answer minio.ErrorResponse) *ServiceError {
	kind, known := kinds[answer.Code]
	if !known {
		kind, known = statuses[answer.StatusCode]
	}
	if !known && answer.StatusCode >= http.StatusInternalServerError {
		kind, known = Unavailable, true
	}
	if !known {
		return nil
	}
	e := newServiceError(kind, b.address.Endpoint, answer)
	switch kind {
	case NoBucket:
		e.Text = fmt.Sprintf("the bucket %s does not exist at %s", b.address.Bucket, hostOf(b.address.Endpoint))
	case Denied:
		e.Text = fmt.Sprintf("the credentials are not allowed to use %s in this way (%s)", b.address, answer.Code)
	case Full:
		e.Text = fmt.Sprintf("the bucket %s is full (%s)", b.address.Bucket, answer.Code)
	case Region:
		if answer.Region != "" {
			e.Hint = "set AWS_REGION=" + answer.Region
		}
	}
	return e
}

// messages are the sentences of the kinds; %s is the service's host and port.
var messages = map[Kind]struct{ text, hint string }{
	Unavailable: {"the storage service at %s has failed",
		"it will be tried again; if it goes on, ask the service's operator"},
	Busy: {"the storage service at %s is overloaded", "it will be tried again; use fewer slots if it goes on"},
	Cut: {"the connection to the storage service at %s was cut",
		"it will be tried again; check the network if it goes on"},
	Slow: {"the storage service at %s did not answer in time",
		"it will be tried again; check the network if it goes on"},
	Refused: {"nothing answers at the storage service's address %s", "start the service, or correct AWS_ENDPOINT_URL"},
	Name: {"the host name of the storage service %s has no address",
		"correct AWS_ENDPOINT_URL or this host's DNS, or use path-style addresses (?style=path)"},
	Certificate: {"the certificate of the storage service %s is not trusted",
		"set AWS_CA_BUNDLE to the certificate of its CA, and use the name that the certificate has"},
	Credentials: {"the storage service at %s does not accept the credentials",
		"correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the credentials file"},
	Expired: {"the credentials for the storage service at %s have expired",
		"renew them; the credentials file is then read again, the environment only at the next start"},
	Denied: {"the credentials are not allowed to use the storage service at %s in this way",
		"allow the actions that docs/storage.md lists"},
	Clock:    {"the clocks of this host and of the storage service at %s differ too much", "run NTP on both"},
	Full:     {"the storage at %s is full", "delete what is not needed, or raise the quota"},
	NoBucket: {"the bucket does not exist at %s", "create it, or correct the address"},
	Region:   {"the bucket is in another region than the address %s says", "set AWS_REGION to the bucket's region"},
	Unsuitable: {"the service at %s is not S3, or lacks a function that is needed",
		"correct AWS_ENDPOINT_URL, or use a service with the functions that docs/storage.md lists"},
}

func newServiceError(kind Kind, endpoint string, cause error) *ServiceError {
	m := messages[kind]
	return &ServiceError{Kind: kind, Text: fmt.Sprintf(m.text, hostOf(endpoint)), Hint: m.hint, Err: cause}
}

// hostOf returns the host and port of an endpoint. The history shows no URLs in errors, and this is none.
func hostOf(endpoint string) string { return endpoint[strings.LastIndex(endpoint, "/")+1:] }

// explainNetwork returns nil if the error is not one of the connection.
func explainNetwork(endpoint string, err error) *ServiceError {
	var dns *net.DNSError
	var timeout net.Error
	var syntax *xml.SyntaxError
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	kind := Kind("")
	switch {
	case errors.As(err, &dns):
		kind = Name
	case errors.As(err, &verification):
		kind = Certificate
	case errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/":
		return wrongScheme(endpoint, err)
	case errors.As(err, &record), strings.Contains(err.Error(), "malformed HTTP response"):
		kind = Unsuitable
	case errors.Is(err, syscall.ECONNREFUSED):
		kind = Refused
	case errors.As(err, &timeout) && timeout.Timeout():
		kind = Slow
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &syntax),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, net.ErrClosed),
		strings.Contains(err.Error(), "server closed idle connection"),
		strings.Contains(err.Error(), "transport connection broken"):
		kind = Cut
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		kind = Refused
	default:
		return nil
	}
	return newServiceError(kind, endpoint, err)
}
