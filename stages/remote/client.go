package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/problem"
	"github.com/cuelight/cuelight/stages"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// ClientOptions configure a [Client]. URL, Key and Graph must be set.
type ClientOptions struct {
	// URL is the address of a Coordinator, http or https, with the path that it is mounted at.
	URL string
	// Key is the bearer token of the requests.
	Key string
	// Graph is the graph of the worker's pipeline. It must have the coordinator's stages.
	Graph store.Graph
	// HTTP sends the requests, also those for inputs to which the coordinator redirects. Default: a
	// client with connections of its own. It must not have a Timeout, and its CheckRedirect is not used.
	HTTP *http.Client
	// Metadata, a JSON object of up to 10 KB, describes the worker for operators.
	Metadata json.RawMessage
	// OnContact is called with the reason after each request that the coordinator did not answer, or answered
	// with 5xx, and with nil when it answers again. Transfers of files do not count. It must not block.
	OnContact func(error)
}

// Client is a worker's side of the protocol. Create it with [NewClient]; one Runner uses it.
type Client struct {
	o      ClientOptions
	stages []string
	wakes  chan struct{} // has room for one: notified is not empty
	// registered receives a value after a registration.
	registered chan struct{}
	// reachable receives a value when the coordinator has answered again.
	reachable  chan struct{}
	exchanging sync.Mutex // is locked during an exchange of the Runner

	contact     sync.Mutex // orders the calls of OnContact
	lostContact bool

	mu       sync.Mutex // guards the rest
	notified map[string]bool
	claims   map[store.ID]engine.Claim // by token: those that the coordinator gave to this worker
	granted  []engine.Claim            // by the waiting request, not yet given to the Runner
	ended    map[store.ID]bool         // claims that ended while the request waits: its answer may have them again
	free     map[string]int            // slots after the last exchange
	worker   store.ID
	proxied  bool // an HTTP proxy passes the requests on, as the coordinator sees
	direct   bool // no proxy of any kind does
	waits    bool // a request waits, as far as is known
	answered bool // the last one that waited was answered with an error
	controls controlsBody
	sequence int64 // of the last exchange
	// directUntil is until when inputs come from the coordinator itself, because nothing arrived from
	// where it redirects to.
	directUntil time.Time
}

// ErrRefused says that the coordinator does not accept this worker, and that trying again does not help.
var ErrRefused = errors.New("the coordinator refuses this worker")

// Reasons of a refusal. They match ErrRefused.
const (
	ErrNoCoordinator refusal = "there is no Cuelight coordinator at this address"
	ErrUntrusted     refusal = "the coordinator's certificate is not trusted"
	ErrKey           refusal = "the coordinator does not accept the key"
	ErrVersion       refusal = "the coordinator and this worker have different versions of the protocol"
)

type refusal string

func (r refusal) Error() string        { return string(r) }
func (r refusal) Is(target error) bool { return target == ErrRefused || target == error(r) }

// NewClient returns a Client. It makes no request.
func NewClient(o ClientOptions) (*Client, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("address of the coordinator: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("address of the coordinator: %q is not an http or https address such as https://media.example", o.URL)
	case strings.TrimSpace(o.Key) == "":
		return nil, errors.New("there is no key")
	case strings.ContainsFunc(strings.TrimSpace(o.Key), func(r rune) bool { return r < ' ' || r > '~' }):
		return nil, errors.New("the key has characters other than printable ASCII")
	}
	o.URL = strings.TrimSuffix(o.URL, "/")
	o.Key = strings.TrimSpace(o.Key)
	if o.OnContact == nil {
		o.OnContact = func(error) {}
	}
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: NewTransport()}
	}
	client := *o.HTTP
	client.CheckRedirect = sameOrigin
	o.HTTP = &client
	return &Client{
		o: o, stages: o.Graph.Stages(), notified: make(map[string]bool),
		wakes: make(chan struct{}, 1), registered: make(chan struct{}, 1), reachable: make(chan struct{}, 1),
		claims: make(map[store.ID]engine.Claim), free: make(map[string]int),
	}, nil
}

// sameOrigin follows redirects within the coordinator only: the key must not go elsewhere, not even
// to another port of its host.
func sameOrigin(r *http.Request, via []*http.Request) error {
	if len(via) >= 10 || r.URL.Scheme != via[0].URL.Scheme || r.URL.Host != via[0].URL.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// directTime is how long redirects are avoided after one that led nowhere.
const directTime = 10 * time.Minute

func (c *Client) followsRedirects() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().After(c.directUntil)
}

func (c *Client) avoidRedirects() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.directUntil = time.Now().Add(directTime)
}

// NewTransport returns a transport whose connections end soon after the host at the other end.
func NewTransport() *http.Transport {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 8
	t.ResponseHeaderTimeout = maxWait + 15*time.Second
	t.ForceAttemptHTTP2 = false // one connection per request shows the end of either side
	t.TLSNextProto = nil
	return t
}

// Backend returns the Backend of the Runner.
func (c *Client) Backend() stages.Backend { return clientBackend{c} }

// Wakes returns the Wakes of the Runner.
func (c *Client) Wakes() stages.Listener { return clientWakes{c} }

// responseError is a problem that the coordinator answered with.
type responseError struct {
	kind   problem.Kind
	status int
	detail string
}

func (e *responseError) Error() string {
	if e.detail == "" {
		return fmt.Sprintf("the coordinator answered with status %d", e.status)
	}
	return e.detail
}

// Is makes the coordinator's errors those of the store.
func (e *responseError) Is(target error) bool {
	switch target {
	case store.ErrWorkerUnknown:
		return e.kind == problem.WorkerUnknown
	case store.ErrNotFound:
		return e.kind == problem.NotFound
	case ErrKey: // and not an answer of a proxy, which may be mistaken for a while
		return e.kind == problem.Unauthenticated || e.kind == problem.Forbidden
	case ErrVersion:
		return e.kind == problem.ProtocolVersion
	case ErrRefused:
		return e.Is(ErrKey) || e.Is(ErrVersion) || e.kind == problem.Invalid
	}
	return false
}

// errNotOurs says that an answer with the status 200 is not that of a coordinator.
var errNotOurs = errors.New("the answer is not that of a Cuelight coordinator")

// call sends a request with a JSON body, and decodes the answer. Both may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	err := c.callOnce(ctx, method, path, in, out)
	if !errors.Is(ctx.Err(), context.Canceled) { // the caller did not give up
		c.observeContact(err)
	}
	return err
}

// observeContact calls OnContact after a request.
func (c *Client) observeContact(err error) {
	answer, isAnswer := errors.AsType[*responseError](err)
	isLost := err != nil && !(isAnswer && answer.kind != "" && answer.status < 500)
	c.contact.Lock()
	defer c.contact.Unlock()
	if isLost {
		c.o.OnContact(err)
	} else if c.lostContact {
		c.o.OnContact(nil)
	}
	c.lostContact = isLost
}

func (c *Client) callOnce(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	response, err := c.send(ctx, method, path, body, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if out == nil {
		return nil
	}
	if err := json.NewDecoder(response.Body).Decode(out); err != nil {
		if !errors.Is(err, io.ErrUnexpectedEOF) { // the connection was cut
			err = fmt.Errorf("%w: %w", errNotOurs, err)
		}
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	_, _ = io.Copy(io.Discard, response.Body) // so that the connection is used again
	return nil
}

// send sends a request. An answer with an error status is a *responseError.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.o.URL+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		r.Header[name] = values
	}
	r.Header.Set("Authorization", "Bearer "+c.o.Key)
	if body != nil && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.o.HTTP.Do(r)
	if err != nil {
		return nil, err
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	return response, newResponseError(response)
}

func newResponseError(response *http.Response) error {
	var p struct{ Type, Detail string }
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	_ = json.Unmarshal(text, &p) // another server's answer has no type
	kind, _ := strings.CutPrefix(p.Type, problem.TypePrefix)
	return &responseError{kind: problem.Kind(kind), status: response.StatusCode, detail: p.Detail}
}

// stage returns the number of a stage.
func (c *Client) stage(name string) (int, error) {
	i, ok := c.o.Graph.Stage(name)
	if !ok {
		return 0, fmt.Errorf("the coordinator names a stage %q that this worker does not have", name)
	}
	return i, nil
}

// newExchange returns a request with free slots. The lock is held, so that these do not count what Held has.
func (c *Client) newExchange(free map[string]int) exchangeRequest {
	c.sequence++
	held := slices.AppendSeq([]store.ID{}, maps.Keys(c.claims))
	return exchangeRequest{Worker: c.worker, Sequence: c.sequence, Held: held, FreeSlots: free}
}

// receive remembers the claims of an answer to a worker, and returns those that no other answer had. The lock is held.
func (c *Client) receive(worker store.ID, bodies []claimBody) ([]engine.Claim, error) {
	if worker != c.worker {
		return nil, nil // it was lost meanwhile, and registered as another one
	}
	var claims []engine.Claim
	for _, body := range bodies {
		stage, err := c.stage(body.Stage)
		if err != nil {
			return nil, err
		}
		if _, known := c.claims[body.Token]; !known && !c.ended[body.Token] {
			claims = append(claims, body.claim(stage))
		}
	}
	for _, claim := range claims {
		c.claims[claim.Token] = claim
	}
	return claims, nil
}

// notify wakes the Runner.
func (c *Client) notify(channels ...string) {
	c.mu.Lock()
	for _, channel := range channels {
		c.notified[channel] = true
	}
	c.mu.Unlock()
	signal(c.wakes)
}

// setControls records the controls of an answer, and makes the Runner ask for details if they
// have changed.
func (c *Client) setControls(controls controlsBody) {
	c.mu.Lock()
	changed := controls.ClaimsLost || !controls.equal(c.controls)
	c.controls = controls
	c.mu.Unlock()
	if changed {
		c.notify(c.o.Graph.ControlChannel())
	}
}

// forget forgets a claim that has ended. The lock is held.
func (c *Client) forget(token store.ID) {
	delete(c.claims, token)
	if c.ended != nil {
		c.ended[token] = true
	}
}
