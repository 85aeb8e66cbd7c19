# Sourced by the scripts beside it: defines `prepare EXTRA`, which makes .venv and installs hogwild into it (editable).
# Does nothing, in milliseconds, when the installation is newer than the files that describe it.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$root/.venv/bin/python"

say() { printf '\033[2m==> %s\033[0m\n' "$*" >&2; }
[ -t 2 ] || say() { printf '==> %s\n' "$*" >&2; }

is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    local candidate
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
        if is_recent "$candidate"; then
            command -v "$candidate"
            return
        fi
        if [ "$candidate" = "${PYTHON:-}" ]; then
            echo "PYTHON=$PYTHON is not a Python 3.11 or newer" >&2
            return 1
        fi
    done
    echo "no Python 3.11 or newer found among python3, python3.13, python3.12, python3.11: install one or set PYTHON" >&2
    return 1
}

# Whether this stamp is of this checkout, and newer than what says what to install.
is_fresh() {
    local file
    [ -f "$1" ] && [ "$(cat "$1")" = "$root" ] || return 1
    for file in setup.cfg pyproject.toml constraints.txt; do
        [ "$1" -nt "$root/$file" ] || return 1
    done
}

# prepare "" installs the package, unless it is there with an extra; prepare test adds its test extra.
prepare() {
    local extra="$1" stamp="$root/.venv/.installed${1:+-$1}" found
    for found in "$stamp" "$stamp"-*; do
        if is_fresh "$found" && is_recent "$python"; then
            return
        fi
    done
    if ! is_recent "$python"; then
        local base
        base="$(find_python)"
        say "creating .venv with $("$base" --version)"
        "$base" -m venv --clear "$root/.venv"
    fi
    say "installing hogwild${extra:+ and its $extra tools} into .venv (once; some minutes on a slow line)"
    # Python compiles each module that is imported, once: all of those that are installed would take most of the time.
    "$python" -m pip install --quiet --disable-pip-version-check --no-compile -c "$root/constraints.txt" -e "$root${extra:+[$extra]}"
    echo "$root" > "$stamp"
}
