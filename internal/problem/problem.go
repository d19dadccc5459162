// Package problem writes the error responses of the HTTP API: problem details as in RFC 9457.
//
//	err := problem.New(problem.TooManyUploads, "you have %d unfinished uploads", n).After(time.Minute)
//	err.Write(w, r)
//
// Each kind of problem has one status and one title, whichever package responds. docs/http.md lists the kinds with
// what a client should do. The package does not decide which errors a client may see.
package problem

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// TypePrefix begins the types of problems. The kind follows.
const TypePrefix = "urn:cuelight:problem:"

// Kind is the end of a problem's type.
type Kind string

// The kinds. They are part of the API and do not change.
const (
	InvalidRequest       Kind = "invalid-request"
	Unauthenticated      Kind = "unauthenticated"
	Forbidden            Kind = "forbidden"
	CrossOrigin          Kind = "cross-origin"
	NotFound             Kind = "not-found"
	MethodNotAllowed     Kind = "method-not-allowed"
	RequestIDTaken       Kind = "request-id-taken"
	Overridden           Kind = "overridden"
	Purging              Kind = "purging"
	Unpublishing         Kind = "unpublishing"
	EventsGone           Kind = "events-gone"
	UploadStalled        Kind = "upload-stalled"
	UploadOffset         Kind = "upload-offset"
	UploadTakenOver      Kind = "upload-taken-over"
	UploadComplete       Kind = "upload-complete"
	UploadExpired        Kind = "upload-expired"
	TusVersion           Kind = "tus-version"
	TooLarge             Kind = "too-large"
	UnsupportedMediaType Kind = "unsupported-media-type"
	Misdirected          Kind = "misdirected"
	Invalid              Kind = "invalid"
	UploadBusy           Kind = "upload-busy"
	TooManyFailures      Kind = "too-many-failures"
	TooManyStreams       Kind = "too-many-streams"
	TooManyRequests      Kind = "too-many-requests"
	TooManyUploads       Kind = "too-many-uploads"
	TooManySubmissions   Kind = "too-many-submissions"
	TooManyWorkers       Kind = "too-many-workers"
	ChecksumMismatch     Kind = "checksum-mismatch"
	Internal             Kind = "internal"
	Unavailable          Kind = "unavailable"
	UploadsFull          Kind = "uploads-full"
	DiskFull             Kind = "disk-full"
	ProtocolVersion      Kind = "protocol-version"
	WorkerUnknown        Kind = "worker-unknown"
	ClaimLost            Kind = "claim-lost"
)

// statusChecksumMismatch is a status code of the tus protocol.
const statusChecksumMismatch = 460

var kinds = map[Kind]struct {
	status int
	title  string
}{
	InvalidRequest:       {http.StatusBadRequest, "Invalid request"},
	Unauthenticated:      {http.StatusUnauthorized, "Authentication required"},
	Forbidden:            {http.StatusForbidden, "Not allowed"},
	CrossOrigin:          {http.StatusForbidden, "Cross-origin request"},
	NotFound:             {http.StatusNotFound, "Not found"},
	MethodNotAllowed:     {http.StatusMethodNotAllowed, "Method not allowed"},
	RequestIDTaken:       {http.StatusConflict, "The request id belongs to a task with another source"},
	Overridden:           {http.StatusConflict, "The task is overridden by another task"},
	Purging:              {http.StatusConflict, "The deleted task is being purged"},
	Unpublishing:         {http.StatusConflict, "The published files of the deleted task are being removed"},
	EventsGone:           {http.StatusGone, "The events after this id are deleted"},
	UploadStalled:        {http.StatusRequestTimeout, "No data arrived for too long"},
	UploadOffset:         {http.StatusConflict, "The offset is not the end of the upload"},
	UploadTakenOver:      {http.StatusConflict, "Another request took the upload over"},
	UploadComplete:       {http.StatusConflict, "The upload is complete"},
	UploadExpired:        {http.StatusGone, "The upload has expired"},
	TusVersion:           {http.StatusPreconditionFailed, "This version of tus is not supported"},
	TooLarge:             {http.StatusRequestEntityTooLarge, "The request is too large"},
	UnsupportedMediaType: {http.StatusUnsupportedMediaType, "Unsupported media type"},
	Misdirected:          {http.StatusMisdirectedRequest, "The host name is not of this server"},
	Invalid:              {http.StatusUnprocessableEntity, "Invalid values"},
	UploadBusy:           {http.StatusLocked, "The upload is in use"},
	TooManyFailures:      {http.StatusTooManyRequests, "Too many failed logins"},
	TooManyStreams:       {http.StatusTooManyRequests, "Too many open streams"},
	TooManyRequests:      {http.StatusTooManyRequests, "Too many concurrent requests"},
	TooManyUploads:       {http.StatusTooManyRequests, "Too many unfinished uploads"},
	TooManySubmissions:   {http.StatusTooManyRequests, "Too many submissions of one user"},
	TooManyWorkers:       {http.StatusTooManyRequests, "Too many workers of one key"},
	ChecksumMismatch:     {statusChecksumMismatch, "The checksum differs"},
	Internal:             {http.StatusInternalServerError, "Internal error"},
	Unavailable:          {http.StatusServiceUnavailable, "Temporarily unavailable"},
	UploadsFull:          {http.StatusServiceUnavailable, "Other uploads have reserved all the space"},
	DiskFull:             {http.StatusInsufficientStorage, "The disk is full"},
	ProtocolVersion:      {http.StatusBadRequest, "This version of the worker protocol is not supported"},
	WorkerUnknown:        {http.StatusConflict, "The worker is not registered"},
	ClaimLost:            {http.StatusConflict, "The worker does not hold the claim"},
}

// Problem is an error as a client sees it.
type Problem struct {
	Kind       Kind
	Detail     string
	RetryAfter time.Duration // of the header Retry-After; 0 for none
	// CloseConnection closes an HTTP/1 connection after the response, because the rest of the request is not read.
	CloseConnection bool
	Cause           error // for the server's log; the client does not get it
}

// New returns a problem with a formatted detail.
func New(k Kind, format string, args ...any) *Problem {
	return &Problem{Kind: k, Detail: fmt.Sprintf(format, args...)}
}

// After sets RetryAfter and returns p.
func (p *Problem) After(wait time.Duration) *Problem {
	p.RetryAfter = wait
	return p
}

func (p *Problem) Error() string { return p.Detail }

func (p *Problem) Unwrap() error { return p.Cause }

// Status returns the status of the response.
func (p *Problem) Status() int { return kinds[p.Kind].status }

// Write responds to a request.
func (p *Problem) Write(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Del("Etag")
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(p.RetryAfter.Seconds()))))
	}
	if p.Kind == Unauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="cuelight"`)
	}
	if p.CloseConnection && r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	var body bytes.Buffer // writing JSON to it cannot fail
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(struct {
		Type   string `json:"type"`
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{TypePrefix + string(p.Kind), kinds[p.Kind].title, p.Status(), strings.ToValidUTF8(p.Detail, "\uFFFD")})
	h.Set("Content-Length", strconv.Itoa(body.Len())) // so that the response is complete even if the handler panics
	w.WriteHeader(p.Status())
	_, _ = w.Write(body.Bytes()) // the client may be gone
}
