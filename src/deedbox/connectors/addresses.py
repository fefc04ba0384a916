"""Mail addresses as connectors check them; the form itself is the model's, for people have addresses too."""

from deedbox.model.addresses import check_mail_address, mail_domain

__all__ = ["check_mail_address", "mail_domain"]
