"""The one pipeline that every recipe shares: named, resumable stages from download to score."""
