package store

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// ID identifies a task, a worker or a claim (its token). It is a UUID that the database
// generates: of version 7 for tasks and workers, so that ids sort by time, and of version 4
// for tokens, so that a restored database never repeats one. The zero ID is none.
type ID [16]byte

// ParseID reads the usual text form, with or without dashes.
func ParseID(s string) (ID, error) {
	var id ID
	digits := s
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		digits = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	if len(digits) != 32 {
		return ID{}, fmt.Errorf("%q is not an id", s)
	}
	if _, err := hex.Decode(id[:], []byte(digits)); err != nil {
		return ID{}, fmt.Errorf("%q is not an id", s)
	}
	return id, nil
}

// String is the form with dashes, the one PostgreSQL prints.
func (id ID) String() string {
	var b [36]byte
	hex.Encode(b[:8], id[:4])
	hex.Encode(b[9:13], id[4:6])
	hex.Encode(b[14:18], id[6:8])
	hex.Encode(b[19:23], id[8:10])
	hex.Encode(b[24:], id[10:])
	b[8], b[13], b[18], b[23] = '-', '-', '-', '-'
	return string(b[:])
}

// IsZero reports whether id names nothing.
func (id ID) IsZero() bool { return id == ID{} }

// Time is when an ID of version 7 was made, to the millisecond.
func (id ID) Time() (at time.Time, ok bool) {
	if id[6]>>4 != 7 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(append([]byte{0, 0}, id[:6]...)))), true
}

// MarshalText makes an ID a string in JSON.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ID) UnmarshalText(b []byte) (err error) {
	*id, err = ParseID(string(b))
	return err
}

// ScanUUID and UUIDValue let pgx read and send an ID in binary. A null is the
// zero ID.
func (id *ID) ScanUUID(v pgtype.UUID) error {
	*id = v.Bytes
	return nil
}

// UUIDValue is the other half of ScanUUID.
func (id ID) UUIDValue() (pgtype.UUID, error) {
	return pgtype.UUID{Bytes: id, Valid: !id.IsZero()}, nil
}
