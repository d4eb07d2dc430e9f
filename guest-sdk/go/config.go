package provider

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// LoadConfig parses the cloud-config of this call by the function that Identity.CheckConfig calls,
// too. A fatal problem is the error; warnings do not prevent a call.
func LoadConfig[T any](parse func(text string) (T, []Problem)) (T, error) {
	config, problems := parse(Config())
	if at := slices.IndexFunc(problems, isFatal); at >= 0 {
		problem := problems[at]
		return config, Invalid("cloud-config, line %d, %s: %s", problem.Line, problem.Key, problem.Message)
	}
	return config, nil
}

// HasFatal reports whether one of the problems refuses the cloud-config.
func HasFatal(problems []Problem) bool { return slices.ContainsFunc(problems, isFatal) }

func isFatal(problem Problem) bool { return problem.Severity != Warning }

// INI is a cloud-config of sections, keys and values, the format of most clouds. Sections and keys
// are compared without case.
type INI struct {
	entries  []iniEntry
	problems []Problem
}

type iniEntry struct {
	line                uint32
	section, key, value string
	asked               bool
}

// ParseINI reads a cloud-config. [INI.Problems] returns the problems.
func ParseINI(text string) *INI {
	ini, section := &INI{}, ""
	for index, line := range strings.Split(text, "\n") {
		ini.parseLine(uint32(index+1), strings.TrimSpace(line), &section)
	}
	return ini
}

func (i *INI) parseLine(number uint32, line string, section *string) {
	switch {
	case line == "" || isComment(line):
	case line[0] == '[':
		name, after, closed := strings.Cut(line[1:], "]")
		if after = strings.TrimSpace(after); !closed || after != "" && !isComment(after) {
			i.problem(Fatal, number, "", "a section ends with ]")
			return
		}
		*section = strings.TrimSpace(name)
	default:
		key, value, assigns := strings.Cut(line, "=")
		if !assigns {
			i.problem(Fatal, number, line, "expected key = value")
			return
		}
		key = strings.TrimSpace(key)
		value, err := iniValue(strings.TrimSpace(value))
		if err != nil {
			i.problem(Fatal, number, iniPath(*section, key), err.Error())
			return
		}
		i.entries = append(i.entries, iniEntry{line: number, section: *section, key: key, value: value})
	}
}

func isComment(text string) bool { return text[0] == '#' || text[0] == ';' }

// iniValue ends an unquoted value at a comment after a space, and reads \" and \\ in a quoted one.
func iniValue(text string) (string, error) {
	if !strings.HasPrefix(text, `"`) {
		for at := range text {
			if isComment(text[at:]) && (at == 0 || text[at-1] == ' ' || text[at-1] == '\t') {
				return strings.TrimRight(text[:at], " \t"), nil
			}
		}
		return text, nil
	}
	var value strings.Builder
	for at := 1; at < len(text); at++ {
		switch c := text[at]; c {
		case '"':
			if rest := strings.TrimSpace(text[at+1:]); rest != "" && !isComment(rest) {
				return "", errors.New("text behind the closing quote")
			}
			return value.String(), nil
		case '\\':
			if at++; at == len(text) || text[at] != '"' && text[at] != '\\' {
				return "", errors.New(`after \ only " and \ may stand`)
			}
			value.WriteByte(text[at])
		default:
			value.WriteByte(c)
		}
	}
	return "", errors.New("the quote is not closed")
}

func iniPath(section, key string) string {
	if section == "" {
		return key
	}
	return section + "." + key
}

func (i *INI) problem(severity Severity, line uint32, key, message string) {
	i.problems = append(i.problems, Problem{Severity: severity, Line: line, Key: key, Message: message})
}

// take returns the entries of a key, which somebody has now asked for.
func (i *INI) take(section, key string) []iniEntry {
	var entries []iniEntry
	for index := range i.entries {
		if entry := &i.entries[index]; entry.is(section, key) {
			entry.asked = true
			entries = append(entries, *entry)
		}
	}
	return entries
}

// Optional returns a value; false where the key is absent. A second value is a problem.
func (i *INI) Optional(section, key string) (string, bool) {
	entries := i.take(section, key)
	if len(entries) == 0 {
		return "", false
	}
	for _, entry := range entries[1:] {
		i.problem(Fatal, entry.line, iniPath(section, key), "stands here a second time")
	}
	return entries[0].value, true
}

// Required returns a value; an absent or empty one is a problem.
func (i *INI) Required(section, key string) string {
	value, _ := i.Optional(section, key)
	if value == "" {
		i.Refuse(section, key, "is required")
	}
	return value
}

// List returns all values of a key that may stand several times, in their order.
func (i *INI) List(section, key string) []string {
	var values []string
	for _, entry := range i.take(section, key) {
		values = append(values, entry.value)
	}
	return values
}

// ReadINI returns a value as parse reads it, for example strconv.ParseBool, time.ParseDuration or
// netip.ParsePrefix; false where the key is absent, and where parse returns an error, which is a
// problem.
func ReadINI[T any](ini *INI, section, key string, parse func(text string) (T, error)) (T, bool) {
	var none T
	text, found := ini.Optional(section, key)
	if !found {
		return none, false
	}
	value, err := parse(text)
	if err != nil {
		ini.Refuse(section, key, "%q: %v", text, err)
		return none, false
	}
	return value, true
}

// Refuse adds a fatal problem of a key.
func (i *INI) Refuse(section, key, format string, args ...any) {
	i.problem(Fatal, i.line(section, key), iniPath(section, key), fmt.Sprintf(format, args...))
}

// Warn adds a warning about a key.
func (i *INI) Warn(section, key, format string, args ...any) {
	i.problem(Warning, i.line(section, key), iniPath(section, key), fmt.Sprintf(format, args...))
}

func (i *INI) line(section, key string) uint32 {
	for _, entry := range i.entries {
		if entry.is(section, key) {
			return entry.line
		}
	}
	return 0
}

func (e *iniEntry) is(section, key string) bool {
	return strings.EqualFold(e.section, section) && strings.EqualFold(e.key, key)
}

// Problems returns all problems by line, with one for each key that nobody asked for.
func (i *INI) Problems() []Problem {
	problems := slices.Clone(i.problems)
	for _, entry := range i.entries {
		if !entry.asked {
			key := iniPath(entry.section, entry.key)
			problems = append(problems, Problem{Fatal, entry.line, key, "is not a key of this provider"})
		}
	}
	slices.SortStableFunc(problems, func(one, other Problem) int { return cmp.Compare(one.Line, other.Line) })
	return problems
}
