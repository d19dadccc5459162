package webhook

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/cuelight/cuelight/store"
)

// The lease is what makes one process of many deliver. It is renewed a good deal
// more often than it runs out, and whoever has not got it asks for it often enough
// that another takes over within fifteen seconds.
const (
	leaseDuration    = 11 * time.Second
	renewalsPerLease = 4 // of it, between two renewals, and between two tries to get it
)

// errLost says that another process delivers now, or may.
var errLeaseLost = errors.New("the lease is another's")

// errNone says that there is nobody to deliver to.
var errNoWebhooks = errors.New("there is no webhook")

const hasEnabledSQL = `
/* is there a webhook */
select exists (select from cuelight_webhooks where pipeline = $1 and disabled_at is null)`

// any reports whether anybody is to be told of anything.
func (w *Webhooks) hasEnabled(ctx context.Context) (any bool, err error) {
	err = w.db.QueryRow(ctx, hasEnabledSQL, w.options.Pipeline).Scan(&any)
	if err != nil {
		err = fmt.Errorf("look for webhooks: %w", err)
	}
	return any, err
}

// acquire: while somebody else has it, asking for it only reads.
const acquireSQL = `
/* acquire lease */
insert into cuelight_leases as l (name, holder, until)
select $1, $2, now() + make_interval(secs => $3)
 where not exists (select from cuelight_leases where name = $1 and holder <> $2 and until > now())
on conflict (name) do update set holder = excluded.holder, until = excluded.until
 where l.holder = excluded.holder or l.until <= now()
returning true`

// acquire reports whether this deliverer may deliver now.
func (d *deliverer) acquire(ctx context.Context) (bool, error) {
	begun := time.Now()
	var got bool
	err := d.webhooks.db.QueryRow(ctx, acquireSQL, d.webhooks.leaseName(), d.holder, d.webhooks.options.leaseDuration.Seconds()).Scan(&got)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("acquire lease: %w", err)
	}
	d.renewed = begun
	return true, nil
}

// renew locks the lease's row until the transaction ends. So whatever is written
// in it is written by the one that has the lease, and nobody takes it meanwhile.
const renewSQL = `
/* renew lease */
update cuelight_leases set until = now() + make_interval(secs => $3) where name = $1 and holder = $2 returning true`

const releaseSQL = `
/* release lease */
delete from cuelight_leases where name = $1 and holder = $2`

// release lets another take over at once.
func (d *deliverer) release(ctx context.Context) error {
	if _, err := d.webhooks.db.Exec(ctx, releaseSQL, d.webhooks.leaseName(), d.holder); err != nil {
		return fmt.Errorf("release lease: %w", err)
	}
	return nil
}

func (w *Webhooks) leaseName() string { return "webhooks:" + w.options.Pipeline }

// newID is a random UUID, for what no row is made of.
func newID() (id store.ID) {
	rand.Read(id[:]) // never fails: it crashes the program instead
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return id
}
