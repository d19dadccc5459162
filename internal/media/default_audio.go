package media

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// SetDefaultAudio makes an audio stream the first and default one: the first in a language, such as "de", or one by its number in
// the order of the source, such as "2". If there is none, it adds a warning. An empty choice changes nothing.
func (i *Info) SetDefaultAudio(choice string) {
	if choice == "" {
		return
	}
	at, missing := i.findLanguage(choice), "none in the language "+choice
	if number, err := strconv.Atoi(choice); err == nil {
		at, missing = i.findAudio(number), "no audio stream of the number "+choice
	}
	if at < 0 {
		i.warn("the default sound is that of the source: it has %s", missing)
		return
	}
	chosen := i.Audio[at]
	i.Audio = slices.Insert(slices.Delete(i.Audio, at, at+1), 0, chosen)
	for n := range i.Audio {
		i.Audio[n].Default = n == 0
	}
}

// findAudio returns the index of an audio stream by its number in the order of the source, or -1.
func (i *Info) findAudio(number int) int {
	order := slices.SortedFunc(slices.Values(i.Audio), func(a, b Audio) int { return cmp.Compare(a.Index, b.Index) })
	if number < 1 || number > len(order) {
		return -1
	}
	return slices.IndexFunc(i.Audio, func(a Audio) bool { return a.Index == order[number-1].Index })
}

// findLanguage returns the index of the first audio stream in a language, if possible also of the same region, or -1.
func (i *Info) findLanguage(tag string) int {
	tag = bcp47(languageTag(tag))
	base := func(tag string) string { first, _, _ := strings.Cut(bcp47(tag), "-"); return first }
	isSame := func(a Audio) bool { return a.Language != "" && bcp47(a.Language) == tag }
	if at := slices.IndexFunc(i.Audio, isSame); at >= 0 {
		return at
	}
	return slices.IndexFunc(i.Audio, func(a Audio) bool { return a.Language != "" && base(a.Language) == base(tag) })
}
